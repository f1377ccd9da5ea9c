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

/// Pairwise Adasum: a = (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b, so that the projection that both vectors share
/// counts once. A vector of zeros, which a joined rank contributes, leaves the other vector unchanged, infinities
/// included.
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
  AdasumBatch(BatchContext& context, BatchEntry entry) : context_(context), entry_(std::move(entry)) {}

  bool start() override {
    began_ = context_.timeline.now();
    const auto ranks = static_cast<std::size_t>(context_.communicator.size());
    const auto self = static_cast<std::size_t>(context_.communicator.rank());
    for (const TensorSpec& spec : entry_.spec->tensors) {
      Item& item = items_.emplace_back();
      item.count = spec.count();
      item.all = Buffer(item.count * ranks, spec.dtype);
      const BufferView own = item.all.view().part(self * item.count, item.count);
      if (entry_.local && item.count > 0) {
        scale(own.data, entry_.local->tensors[items_.size() - 1].input, item.count, spec.dtype,
              user_factor(entry_.spec->prescale, spec.dtype));
      }
      ++context_.counters.collectives;
      context_.counters.reduced_bytes += spec.size_in_bytes();
      item.work = context_.communicator.allgather_async(own, item.all.view());
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
    if (!entry_.local) return;
    for (; finished_ < entry_.local->tensors.size(); ++finished_) {
      deliver(entry_.local->tensors[finished_], error, completions);
    }
  }

 private:
  struct Item {
    std::size_t count = 0;
    Buffer all;
    Work work;
  };
  bool deliver_arrived(std::vector<Completion>& completions) {
    for (; finished_ < items_.size(); ++finished_) {
      Item& item = items_[finished_];
      if (!item.work.test()) return false;
      item.work.wait();
      if (!entry_.local) continue;
      LocalTensor& tensor = entry_.local->tensors[finished_];
      std::vector<void*> vectors;
      for (std::size_t first = 0; first < item.all.count(); first += item.count) {
        vectors.push_back(item.all.view().part(first, item.count).data);
      }
      if (item.count > 0) {
        adaptive_sum(vectors, item.count, tensor.dtype);
        scale(tensor.output, vectors.front(), item.count, tensor.dtype,
              user_factor(entry_.spec->postscale, tensor.dtype));
      }
      deliver(tensor, std::nullopt, completions);
    }
    return true;
  }

  static void deliver(LocalTensor& tensor, const std::optional<RequestError>& error,
                      std::vector<Completion>& completions) {
    std::vector<std::int64_t> shape = tensor.shape;
    completions.push_back({std::move(tensor), error, std::move(shape), {}});
  }

  BatchContext& context_;
  BatchEntry entry_;
  std::vector<Item> items_;
  std::size_t finished_ = 0;
  Timeline::Time began_{};  // set if the timeline is on
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
