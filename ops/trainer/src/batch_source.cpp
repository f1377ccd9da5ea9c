// SPDX-License-Identifier: Apache-2.0
#include "batch_source.h"

#include <omp.h>

#include <algorithm>
#include <utility>

#include "gathered_batch.h"

namespace farandole::trainer {

template <class Scalar>
BatchSource<Scalar>::BatchSource(const Dataset& data, const DataOptions& options, BatchPlan plan, MemorySpace space)
    : plan_(std::move(plan)),
      data_name_(plan_.data_name(plan_.rank())),
      data_(data),
      drawn_on_device_(space.is_host() ? nullptr : SyntheticDataset::from(data)),
      loaders_{plan_.loader(), plan_.loader()} {
  if (options.threads == 0 || options.batches_ahead == 0 || drawn_on_device_ != nullptr) return;
  const auto gather_on_thread = [this](std::int64_t index, MicroBatch<Scalar>& result) {
    omp_set_num_threads(1);  // of this thread: a data set that uses OpenMP takes no cores from the kernel threads
    gather(index, result);
  };
  prefetcher_.emplace(gather_on_thread, data_.is_sequential() ? 1 : options.threads,
                      options.batches_ahead * plan_.micro_batches());
}

template <class Scalar>
void BatchSource<Scalar>::seek(std::int64_t training_step) {
  waited_ = Seconds{0};
  position_ = training_step * plan_.micro_batches();
  if (prefetcher_) prefetcher_->set_range(position_, last_step_ * plan_.micro_batches());
}

template <class Scalar>
MicroBatch<Scalar>& BatchSource<Scalar>::next() {
  const auto start = Clock::now();
  MicroBatch<Scalar>* result = &gathered_;
  if (prefetcher_) {
    result = &prefetcher_->next();
  } else {
    gather(position_, gathered_);
    ++position_;
  }
  waited_ += Clock::now() - start;
  return *result;
}

template <class Scalar>
void BatchSource<Scalar>::gather(std::int64_t index, MicroBatch<Scalar>& result) {
  const std::int64_t training_step = index / plan_.micro_batches();
  const StepSamples samples = this->samples(training_step);
  result.part = plan_.micro_batch(samples, index % plan_.micro_batches());
  result.samples.resize(static_cast<std::size_t>(result.part.count));
  if (result.part.count == 0) return;
  const std::int64_t epoch = training_step / batches_per_epoch();
  const std::int64_t first = result.part.first - (plan_.has_own_shards() ? samples.own.first : 0);
  {
    const std::lock_guard lock(order_);
    Loader& loader = loaders_[prefetcher_ ? static_cast<std::size_t>(epoch % 2) : 0];
    loader.start_epoch(epoch);
    const auto batch = loader.batch(training_step % batches_per_epoch());
    std::copy_n(batch.begin() + first, result.part.count, result.samples.begin());
  }
  if (drawn_on_device_ != nullptr) return;
  data_.gather_for_training(result.samples, {plan_.seed(), epoch}, result.batch);
  check_gathered(data_, data_name_, result.samples, result.batch);
  result.batch.targets_are_probabilities = data_.targets_are_probabilities();
}

template class BatchSource<float>;
template class BatchSource<double>;

}  // namespace farandole::trainer
