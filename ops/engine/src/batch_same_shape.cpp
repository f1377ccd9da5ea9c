// SPDX-License-Identifier: Apache-2.0
// Allreduce and broadcast of tensors, with small tensors packed together.
#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <utility>

#include "batch.h"
#include "farandole/core/reduce.h"
#include "farandole/internal/average.h"

namespace farandole {
namespace {

constexpr std::size_t kMinBufferBytes = 64 << 10;
constexpr std::size_t kMaxFreeBuffers = 8;

/// Divides the tensors into runs; each run is a collective. A tensor of `min_unfused_bytes` or more is a run of its
/// own; smaller tensors of the same type (broadcasts: of any type) share a fusion buffer up to `fusion_bytes`.
class SameShapeBatch final : public Batch {
 public:
  SameShapeBatch(BatchContext& context, std::vector<BatchEntry> entries)
      : context_(context),
        entries_(std::move(entries)),
        spec_(*entries_.front().spec),
        agreed_at_(context.timeline.now()) {
    plan();
  }

  bool start() override {
    for (Run& run : runs_) begin(run);
    return true;
  }

  bool finish(std::vector<Completion>& completions) override {
    for (; finished_ < runs_.size(); ++finished_) {
      Run& run = runs_[finished_];
      if (!run.work.test()) return false;
      run.work.wait();
      const auto moved = context_.timeline.now();
      unpack(run);
      if (context_.timeline.is_on()) record(run, moved);
      deliver(run, std::nullopt, completions);
    }
    return true;
  }

  void fail(const RequestError& error, std::vector<Completion>& completions) override {
    for (; finished_ < runs_.size(); ++finished_) deliver(runs_[finished_], error, completions);
  }

 private:
  /// A tensor within a run.
  struct Part {
    const TensorSpec* spec = nullptr;
    LocalTensor* local = nullptr;  // null: this rank has joined, and contributes neutral values
    const RequestSpec* request = nullptr;
  };
  /// The data of a collective: a tensor in place, or several tensors in a fusion buffer.
  struct Run {
    std::vector<Part> parts;
    std::size_t bytes = 0;
    Buffer packed;
    BufferView values;
    Work work;
    Timeline::Time began{}, packed_at{};  // set if the timeline is on
  };

  bool reduces() const { return spec_.kind == RequestKind::kAllreduce; }
  DType dtype(const Run& run) const { return reduces() ? run.parts.front().spec->dtype : DType::kU8; }
  bool is_packed(const Run& run) const { return run.parts.size() > 1 || run.parts.front().local == nullptr; }

  void plan() {
    std::map<DType, std::size_t> open;  // by type: index of the run with room; broadcasts move all types as bytes
    for (BatchEntry& entry : entries_) {
      for (std::size_t i = 0; i < entry.spec->tensors.size(); ++i) {
        const TensorSpec& tensor = entry.spec->tensors[i];
        const Part part{&tensor, entry.local ? &entry.local->tensors[i] : nullptr, entry.spec.get()};
        const std::size_t bytes = tensor.size_in_bytes();
        if (bytes >= context_.min_unfused_bytes) {
          runs_.emplace_back().parts.push_back(part);
          runs_.back().bytes = bytes;
          continue;
        }
        const auto [found, is_first] = open.try_emplace(reduces() ? tensor.dtype : DType::kU8, runs_.size());
        if (is_first || runs_[found->second].bytes + bytes > context_.fusion_bytes) {
          found->second = runs_.size();
          runs_.emplace_back();
        }
        runs_[found->second].parts.push_back(part);
        runs_[found->second].bytes += bytes;
      }
    }
  }

  void begin(Run& run) {
    const std::size_t count = run.bytes / size_in_bytes(dtype(run));
    ++context_.counters.collectives;
    ConstBufferView input;
    double prescale = spec_.prescale;
    run.began = context_.timeline.now();
    if (is_packed(run)) {
      run.packed = context_.buffers.take(run.bytes);
      run.values = BufferView(run.packed.view().data, count, dtype(run));
      pack(run);
      // Neutral values must not be scaled: `pack` has scaled the other parts, so the collective gets prescale 1.
      if (has_joined_part(run)) prescale = 1.0;
      input = run.values;
    } else {
      const LocalTensor& tensor = *run.parts.front().local;
      run.values = BufferView(tensor.output, count, dtype(run));
      input = ConstBufferView(tensor.input, count, dtype(run));
    }
    run.packed_at = context_.timeline.now();
    if (reduces()) {
      context_.counters.reduced_bytes += run.bytes;
      run.work = context_.communicator.allreduce_async(input, run.values, spec_.op, {prescale, spec_.postscale});
      return;
    }
    if (context_.communicator.rank() == spec_.root && input.data != run.values.data && run.bytes > 0) {
      std::memcpy(run.values.data, input.data, run.bytes);
    }
    run.work = context_.communicator.broadcast_async(run.values, spec_.root);
  }

  static bool has_joined_part(const Run& run) {
    return std::any_of(run.parts.begin(), run.parts.end(), [](const Part& part) { return part.local == nullptr; });
  }

  /// Copies the parts into the fusion buffer. If this rank has joined for some parts, the other parts are scaled here.
  void pack(Run& run) {
    auto* to = static_cast<std::byte*>(run.values.data);
    const bool scales = spec_.prescale != 1.0 && has_joined_part(run);
    for (const Part& part : run.parts) {
      const std::size_t bytes = part.spec->size_in_bytes();
      if (part.local == nullptr) {
        fill_neutral(to, part.spec->count(), part.spec->dtype, spec_.op);
      } else if (scales) {
        scale(to, part.local->input, part.spec->count(), part.spec->dtype,
              user_factor(spec_.prescale, part.spec->dtype));
      } else if (bytes > 0 && (reduces() || context_.communicator.rank() == spec_.root)) {
        std::memcpy(to, part.local->input, bytes);
      }
      to += bytes;
    }
    context_.counters.packed_tensors += run.parts.size();
    context_.counters.packed_bytes += run.bytes;
  }

  void unpack(Run& run) {
    if (!is_packed(run)) return;
    const auto* from = static_cast<const std::byte*>(run.values.data);
    for (const Part& part : run.parts) {
      const std::size_t bytes = part.spec->size_in_bytes();
      if (part.local != nullptr && bytes > 0) std::memcpy(part.local->output, from, bytes);
      from += bytes;
    }
    context_.buffers.give_back(std::move(run.packed));
  }

  /// @param moved  end of the run's collective
  void record(const Run& run, Timeline::Time moved) {
    Timeline& timeline = context_.timeline;
    const auto now = Clock::now();
    const RequestSpec* last = nullptr;
    for (const Part& part : run.parts) {
      if (std::exchange(last, part.request) == part.request) continue;
      const std::string& name = part.request->name;
      timeline.span(name, "WAIT_FOR_DATA", agreed_at_, run.began);
      if (is_packed(run)) timeline.span(name, "MEMCPY_IN_FUSION_BUFFER", run.began, run.packed_at);
      timeline.span(name, collective_activity_of(*part.request), run.packed_at, moved);
      if (is_packed(run)) timeline.span(name, "MEMCPY_OUT_FUSION_BUFFER", moved, now);
      if (is_last_of(*part.request)) timeline.end(name, now);
    }
  }

  /// True if no run after the current run has tensors of the request.
  bool is_last_of(const RequestSpec& request) const {
    return std::none_of(runs_.begin() + static_cast<std::ptrdiff_t>(finished_) + 1, runs_.end(), [&](const Run& run) {
      return std::any_of(run.parts.begin(), run.parts.end(),
                         [&](const Part& part) { return part.request == &request; });
    });
  }

  static void deliver(Run& run, const std::optional<RequestError>& error, std::vector<Completion>& completions) {
    for (const Part& part : run.parts) {
      if (part.local == nullptr) continue;
      std::vector<std::int64_t> shape = part.local->shape;
      completions.push_back({std::move(*part.local), error, std::move(shape), {}});
    }
  }

  BatchContext& context_;
  std::vector<BatchEntry> entries_;
  const RequestSpec& spec_;  // the first entry's; kind, operation, factors and root are equal in all entries
  const Timeline::Time agreed_at_;
  std::vector<Run> runs_;
  std::size_t finished_ = 0;  // runs whose completions have been added
};

}  // namespace

Buffer FusionBuffers::take(std::size_t bytes) {
  const auto fits =
      std::find_if(free_.begin(), free_.end(), [&](const Buffer& buffer) { return buffer.count() >= bytes; });
  if (fits == free_.end()) {
    return communicator_.allocate(std::bit_ceil(std::max(bytes, kMinBufferBytes)), DType::kU8);
  }
  Buffer taken = std::move(*fits);
  free_.erase(fits);
  return taken;
}

void FusionBuffers::give_back(Buffer buffer) {
  const auto larger =
      std::find_if(free_.begin(), free_.end(), [&](const Buffer& each) { return each.count() >= buffer.count(); });
  free_.insert(larger, std::move(buffer));
  if (free_.size() > kMaxFreeBuffers) free_.erase(free_.begin());
}

std::unique_ptr<Batch> make_same_shape_batch(BatchContext& context, std::vector<BatchEntry> entries) {
  return std::make_unique<SameShapeBatch>(context, std::move(entries));
}

}  // namespace farandole
