// SPDX-License-Identifier: Apache-2.0
#include "batch_feed.h"

#include <utility>

#include "kernels/transfer.h"

namespace farandole::trainer {

template <class Scalar>
BatchFeed<Scalar>::OnDevice::OnDevice(const BatchSource<Scalar>& source, const Execution& execution,
                                      bool always_weights)
    : batch(execution.memory(), always_weights),
      stream(device_of(execution)),
      copies(execution, stream.view()),
      computed(device_of(execution).make_event(DeviceEvent::Use::kHost)) {
  if (source.drawn_on_device() != nullptr) drawn.emplace(*source.drawn_on_device(), execution.memory(), always_weights);
}

template <class Scalar>
BatchParts BatchFeed<Scalar>::OnDevice::parts_of(const MicroBatch<Scalar>& micro_batch) {
  return drawn ? drawn->parts_of(micro_batch.samples) : batch.parts_of(micro_batch.batch);
}

template <class Scalar>
BatchAddresses BatchFeed<Scalar>::OnDevice::reserve(const MicroBatch<Scalar>& micro_batch) {
  return drawn ? drawn->reserve(micro_batch.samples.size()) : batch.reserve(micro_batch.batch);
}

template <class Scalar>
BatchView<Scalar> BatchFeed<Scalar>::OnDevice::view(const Execution& execution, const MicroBatch<Scalar>& micro_batch) {
  return drawn ? drawn->draw(execution, micro_batch.samples.size()) : batch.view(micro_batch.batch);
}

template <class Scalar>
BatchFeed<Scalar>::BatchFeed(BatchSource<Scalar>& source, const Execution& execution, bool always_weights)
    : source_(source), execution_(execution) {
  if (!execution.space().is_host()) device_.emplace(source, execution, always_weights);
}

template <class Scalar>
void BatchFeed<Scalar>::seek(std::int64_t training_step) {
  waited_ = Seconds{0};
  const bool was_fetched = ahead_ != nullptr || error_;
  if (was_fetched && position_ == first_of(training_step)) return;
  ahead_ = nullptr;
  error_ = nullptr;
  position_ = first_of(training_step);
  source_.seek(training_step);
}

template <class Scalar>
const MicroBatch<Scalar>& BatchFeed<Scalar>::next() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  if (ahead_ == nullptr) {
    const Seconds before = source_.waited();
    ahead_ = &source_.next();
    waited_ += source_.waited() - before;
    is_sent_ = false;
  }
  current_ = std::exchange(ahead_, nullptr);
  ++position_;
  return *current_;
}

template <class Scalar>
BatchView<Scalar> BatchFeed<Scalar>::place() {
  if (!device_) return current_->batch;
  const BatchAddresses addresses = device_->reserve(*current_);
  if (!std::exchange(is_sent_, false)) {
    const BatchParts parts = device_->parts_of(*current_);
    device_->copies.reserve(parts);
    device_->copies.send(parts);
  }
  device_->copies.receive(addresses);
  return device_->view(execution_, *current_);
}

template <class Scalar>
void BatchFeed<Scalar>::fetch_ahead() {
  if (!device_ || ahead_ != nullptr || error_ || !source_.has_next()) return;
  device_of(execution_).record(*device_->computed, execution_.stream());
  const Seconds before = source_.waited();
  try {
    ahead_ = &source_.next();
  } catch (...) {
    error_ = std::current_exception();
    return;
  }
  if (device_->computed->is_complete()) waited_ += source_.waited() - before;
  is_sent_ = false;
  if (ahead_->part.count == 0) return;
  const BatchParts parts = device_->parts_of(*ahead_);
  if (!device_->copies.has_room_for(parts)) return;  // memory grows in `place`, when no gradients are in flight
  device_->copies.send(parts);
  is_sent_ = true;
}

template class BatchFeed<float>;
template class BatchFeed<double>;

}  // namespace farandole::trainer
