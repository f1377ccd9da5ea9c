// SPDX-License-Identifier: Apache-2.0
// Adaptive summation (Adasum) of gradients.
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "batch.h"
#include "farandole/core/float_mode.h"
#include "farandole/core/reduce.h"
#include "farandole/internal/average.h"

namespace farandole {
namespace {

double load(float value) {
  return value;
}
double load(double value) {
  return value;
}
double load(Half value) {
  return to_float(value);
}
double load(BFloat16 value) {
  return to_float(value);
}
void store(double value, float& to) {
  to = static_cast<float>(value);
}
void store(double value, double& to) {
  to = value;
}
void store(double value, Half& to) {
  to = to_half(static_cast<float>(value));
}
void store(double value, BFloat16& to) {
  to = to_bfloat16(static_cast<float>(value));
}

/// Pairwise Adasum: a = (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b, so that the component that both vectors share counts
/// once. A vector of zeros, which a joined rank contributes, leaves the other vector unchanged, infinities included.
template <class T>
void combine(T* a, const T* b, std::size_t count) {
  double dot = 0, norm_a = 0, norm_b = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double left = load(a[i]), right = load(b[i]);
    dot += left * right;
    norm_a += left * left;
    norm_b += right * right;
  }
  const bool shares_nothing = norm_a == 0 || norm_b == 0;
  const double factor_a = shares_nothing ? 1 : 1 - dot / (2 * norm_a);
  const double factor_b = shares_nothing ? 1 : 1 - dot / (2 * norm_b);
  for (std::size_t i = 0; i < count; ++i) store(factor_a * load(a[i]) + factor_b * load(b[i]), a[i]);
}

/// Sums in a balanced binary tree over the ranks: after the level with `distance` d, vectors[i] is the sum of the
/// vectors i to i + 2d - 1.
template <class T>
void sum_tree(const std::vector<void*>& vectors, std::size_t count) {
  for (std::size_t distance = 1; distance < vectors.size(); distance *= 2) {
    for (std::size_t i = 0; i + distance < vectors.size(); i += 2 * distance) {
      combine(static_cast<T*>(vectors[i]), static_cast<const T*>(vectors[i + distance]), count);
    }
  }
}

class AdasumBatch final : public Batch {
 public:
  AdasumBatch(BatchContext& context, BatchEntry entry)
      : context_(context), entry_(std::move(entry)), is_direct_(context.is_direct) {}

  bool start() override {
    if (items_.empty()) {
      began_ = context_.timeline.now();
      for (std::size_t i = 0; i < entry_.spec->tensors.size(); ++i) fetch(i);
    }
    for (; started_ < items_.size(); ++started_) {
      Item& item = items_[started_];
      if (item.copied != nullptr && !item.copied->is_complete()) return false;
      gather(item, entry_.spec->tensors[started_]);
    }
    return true;
  }

  bool finish(std::vector<Completion>& completions) override {
    if (!deliver_arrived(completions)) return false;
    const auto now = context_.timeline.now();
    context_.timeline.span(entry_.spec->name, collective_activity_of(*entry_.spec), began_, now);
    context_.timeline.end(entry_.spec->name, now);
    return true;
  }

  void fail(const RequestError& error, std::vector<Completion>& completions) override {
    for (Item& item : items_) return_staging(item);  // not freed: the device may still use the memory
    if (!entry_.local) return;
    for (; finished_ < entry_.local->tensors.size(); ++finished_) {
      deliver(entry_.local->tensors[finished_], error, completions);
    }
  }

 private:
  struct Item {
    const void* input = nullptr;  // in host memory; null: this rank has joined
    std::size_t count = 0;
    Buffer staging;                       // device memory: pinned copy of the input, then of the output
    std::shared_ptr<DeviceEvent> copied;  // complete after the last copy between `staging` and the device
    Buffer all;                           // the vectors of all ranks, by rank
    Work work;
    bool is_summed = false;
  };

  /// Makes the tensor's input available in host memory; for device memory, only enqueues the copy.
  void fetch(std::size_t index) {
    const TensorSpec& spec = entry_.spec->tensors[index];
    Item& item = items_.emplace_back();
    item.count = spec.count();
    if (!entry_.local || item.count == 0) return;
    const LocalTensor& tensor = entry_.local->tensors[index];
    item.input = tensor.input;
    if (tensor.space.is_host()) return;
    DeviceLane& lane = context_.device;
    lane.begin(is_direct_);
    lane.wait_for_input(tensor);
    item.staging = lane.take_pinned(spec.size_in_bytes());
    item.input = item.staging.view().data;
    lane.copy(item.staging.view().data, tensor.input, spec.size_in_bytes());
    item.copied = lane.record(DeviceEvent::Use::kHost);
  }

  void gather(Item& item, const TensorSpec& spec) {
    const auto ranks = static_cast<std::size_t>(context_.communicator.size());
    const auto self = static_cast<std::size_t>(context_.communicator.rank());
    item.all = Buffer(item.count * ranks, spec.dtype);
    const BufferView own = item.all.view().part(self * item.count, item.count);
    if (item.input != nullptr) {
      scale(own.data, item.input, item.count, spec.dtype, user_factor(entry_.spec->prescale, spec.dtype));
    }
    ++context_.counters.collectives;
    context_.counters.reduced_bytes += spec.size_in_bytes();
    item.work = context_.communicator.allgather_async(own, item.all.view());
  }

  /// Sums the vectors of all ranks into the tensor's output; for device memory, only enqueues the copy to the output.
  void sum(Item& item, const LocalTensor& tensor) {
    if (item.count == 0) return;
    std::vector<void*> vectors;
    for (std::size_t first = 0; first < item.all.count(); first += item.count) {
      vectors.push_back(item.all.view().part(first, item.count).data);
    }
    adaptive_sum(vectors, item.count, tensor.dtype);
    void* const output = tensor.space.is_host() ? tensor.output : item.staging.view().data;
    scale(output, vectors.front(), item.count, tensor.dtype, user_factor(entry_.spec->postscale, tensor.dtype));
    if (tensor.space.is_host()) return;
    context_.device.copy(tensor.output, output, item.count * size_in_bytes(tensor.dtype));
    item.copied = context_.device.record(DeviceEvent::Use::kHost);
  }

  void return_staging(Item& item) {
    if (item.staging.count() > 0) context_.device.give_back_pinned(std::move(item.staging));
  }

  bool deliver_arrived(std::vector<Completion>& completions) {
    for (; finished_ < started_; ++finished_) {
      Item& item = items_[finished_];
      if (!item.work.test()) return false;
      item.work.wait();
      if (!entry_.local) continue;
      LocalTensor& tensor = entry_.local->tensors[finished_];
      if (!std::exchange(item.is_summed, true)) sum(item, tensor);
      if (item.copied != nullptr && !item.copied->is_complete()) return false;
      return_staging(item);
      deliver(tensor, std::nullopt, completions);
    }
    return finished_ == items_.size();
  }

  static void deliver(LocalTensor& tensor, const std::optional<RequestError>& error,
                      std::vector<Completion>& completions) {
    std::vector<std::int64_t> shape = tensor.shape;
    completions.push_back({std::move(tensor), error, std::move(shape), {}});
  }

  BatchContext& context_;
  BatchEntry entry_;
  const bool is_direct_;
  std::vector<Item> items_;
  std::size_t started_ = 0, finished_ = 0;
  Timeline::Time began_{};  // set only if the timeline is on
};

}  // namespace

void adaptive_sum(const std::vector<void*>& vectors, std::size_t count, DType dtype) {
  const FloatMode mode;
  with_stored_type(dtype, [&](auto zero) {
    if constexpr (std::is_integral_v<decltype(zero)>) {
      throw InvalidArgument("adasum works on floating-point types only, not on " + std::string(name(dtype)));
    } else {
      sum_tree<decltype(zero)>(vectors, count);
    }
  });
}

std::unique_ptr<Batch> make_adasum_batch(BatchContext& context, BatchEntry entry) {
  return std::make_unique<AdasumBatch>(context, std::move(entry));
}

}  // namespace farandole
