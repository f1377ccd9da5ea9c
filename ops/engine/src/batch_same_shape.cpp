// SPDX-License-Identifier: Apache-2.0
// Allreduce and broadcast of tensors, packed where they are small.
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

constexpr std::size_t kSmallestBuffer = 64 << 10;
constexpr std::size_t kBuffersKept = 8;

class SameShapeBatch final : public Batch {
 public:
  SameShapeBatch(BatchContext& context, std::vector<BatchEntry> entries)
      : context_(context),
        entries_(std::move(entries)),
        spec_(*entries_.front().spec),
        agreed_(context.timeline.now()) {
    plan();
  }

  bool start() override {
    for (Run& run : runs_) begin(run);
    return true;
  }

  bool finish(std::vector<Completion>& completions) override {
    for (; arrived_ < runs_.size(); ++arrived_) {
      Run& run = runs_[arrived_];
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
    for (; arrived_ < runs_.size(); ++arrived_) deliver(runs_[arrived_], error, completions);
  }

 private:
  struct Part {
    const TensorSpec* spec = nullptr;
    LocalTensor* local = nullptr;  // null: this rank has joined, and contributes what is neutral
    const RequestSpec* request = nullptr;
  };
  /// What one collective moves: a tensor where it lies, or several in a fusion buffer.
  struct Run {
    std::vector<Part> parts;
    std::size_t bytes = 0;
    Buffer packed;
    BufferView values;
    Work work;
    Timeline::Time began{}, packed_at{};  // if the timeline is on
  };

  bool reduces() const { return spec_.kind == RequestKind::kAllreduce; }
  DType dtype(const Run& run) const { return reduces() ? run.parts.front().spec->dtype : DType::kU8; }
  bool is_packed(const Run& run) const { return run.parts.size() > 1 || run.parts.front().local == nullptr; }

  void plan() {
    std::map<DType, std::size_t> open;  // the run of each type that takes more; broadcasts move bytes of any type
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
      // What is neutral must not be scaled.
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

  /// With a part of a rank that has joined, the others are scaled here already.
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

  /// @param moved  when its collective had ended
  void record(const Run& run, Timeline::Time moved) {
    Timeline& timeline = context_.timeline;
    const auto now = Clock::now();
    const RequestSpec* last = nullptr;
    for (const Part& part : run.parts) {
      if (std::exchange(last, part.request) == part.request) continue;
      const std::string& name = part.request->name;
      timeline.span(name, "WAIT_FOR_DATA", agreed_, run.began);
      if (is_packed(run)) timeline.span(name, "MEMCPY_IN_FUSION_BUFFER", run.began, run.packed_at);
      timeline.span(name, collective_activity_of(*part.request), run.packed_at, moved);
      if (is_packed(run)) timeline.span(name, "MEMCPY_OUT_FUSION_BUFFER", moved, now);
      if (is_last_of(*part.request)) timeline.end(name, now);
    }
  }

  /// Whether no run after the one that has arrived now has tensors of the request.
  bool is_last_of(const RequestSpec& request) const {
    return std::none_of(runs_.begin() + static_cast<std::ptrdiff_t>(arrived_) + 1, runs_.end(), [&](const Run& run) {
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
  const RequestSpec& spec_;  // of the first entry: kind, op, scales and root are those of all
  const Timeline::Time agreed_;
  std::vector<Run> runs_;
  std::size_t arrived_ = 0;
};

}  // namespace

Buffer FusionBuffers::take(std::size_t bytes) {
  const auto fits =
      std::find_if(free_.begin(), free_.end(), [&](const Buffer& buffer) { return buffer.count() >= bytes; });
  if (fits == free_.end()) {
    return communicator_.allocate(std::bit_ceil(std::max(bytes, kSmallestBuffer)), DType::kU8);
  }
  Buffer taken = std::move(*fits);
  free_.erase(fits);
  return taken;
}

void FusionBuffers::give_back(Buffer buffer) {
  const auto larger =
      std::find_if(free_.begin(), free_.end(), [&](const Buffer& each) { return each.count() >= buffer.count(); });
  free_.insert(larger, std::move(buffer));
  if (free_.size() > kBuffersKept) free_.erase(free_.begin());
}

std::unique_ptr<Batch> make_same_shape_batch(BatchContext& context, std::vector<BatchEntry> entries) {
  return std::make_unique<SameShapeBatch>(context, std::move(entries));
}

}  // namespace farandole
