// SPDX-License-Identifier: Apache-2.0
// Allreduce and broadcast of tensors, with small tensors packed together.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "batch.h"
#include "runs.h"

namespace farandole {
namespace {

/// Divides the tensors into runs; each run is one collective. A large tensor (BucketPlanner::Limits) is a run of its
/// own. Small tensors of the same kind of memory and the same type (broadcasts: any type) share a run, which is packed
/// into a fusion buffer of at most `fusion_bytes`.
class SameShapeBatch final : public Batch {
 public:
  SameShapeBatch(BatchContext& context, std::vector<BatchEntry> entries)
      : context_(context),
        entries_(std::move(entries)),
        spec_(*entries_.front().spec),
        agreed_at_(context.timeline.now()),
        is_direct_(context.is_direct) {
    plan();
  }

  bool start() override {
    for (Run& run : runs_) begin(run);
    return true;
  }

  bool finish(std::vector<Completion>& completions) override {
    for (; finished_ < runs_.size(); ++finished_) {
      Run& run = runs_[finished_];
      if (!mover_of(run).finish(run)) return false;
      if (context_.timeline.is_on()) record(run);
      deliver(run, std::nullopt, completions);
    }
    return true;
  }

  void fail(const RequestError& error, std::vector<Completion>& completions) override {
    for (; finished_ < runs_.size(); ++finished_) {
      Run& run = runs_[finished_];
      deliver(run, error, completions);
      // Keep the buffer in the pool, because the device may still use it.
      if (run.memory() != MemoryKind::kHost && run.packed.count() > 0) context_.device.give_back(std::move(run.packed));
    }
  }

 private:
  RunMover& mover_of(const Run& run) {
    const bool is_host = run.memory() == MemoryKind::kHost;
    std::unique_ptr<RunMover>& mover = is_host ? on_host_ : on_device_;
    if (mover == nullptr)
      mover = is_host ? make_host_mover(context_, spec_) : make_device_mover(context_, spec_, is_direct_);
    return *mover;
  }

  void plan() {
    // By type and memory: index of the run that is being filled. Broadcasts move all types as bytes.
    std::map<std::pair<DType, MemoryKind>, std::size_t> open;
    for (BatchEntry& entry : entries_) {
      for (std::size_t i = 0; i < entry.spec->tensors.size(); ++i) {
        const TensorSpec& tensor = entry.spec->tensors[i];
        const RunPart part{&tensor, entry.local ? &entry.local->tensors[i] : nullptr, entry.spec.get()};
        if (!context_.limits.is_small(tensor.size_in_bytes(), tensor.memory)) {
          add(runs_.emplace_back(), part);
          continue;
        }
        const auto [found, is_first] =
            open.try_emplace({reduces(spec_) ? tensor.dtype : DType::kU8, tensor.memory}, runs_.size());
        if (is_first || runs_[found->second].packed_bytes + packed_size(tensor) > context_.limits.fusion_bytes) {
          found->second = runs_.size();
          runs_.emplace_back();
        }
        add(runs_[found->second], part);
      }
    }
  }

  static void add(Run& run, const RunPart& part) {
    run.parts.push_back(part);
    run.bytes += part.spec->size_in_bytes();
    run.packed_bytes += packed_size(*part.spec);
  }

  void begin(Run& run) {
    run.began = context_.timeline.now();
    ++context_.counters.collectives;
    if (reduces(spec_)) context_.counters.reduced_bytes += run.bytes;
    if (run.is_packed()) {
      context_.counters.packed_tensors += run.parts.size();
      context_.counters.packed_bytes += run.bytes;
    }
    mover_of(run).begin(run);
  }

  void record(const Run& run) {
    Timeline& timeline = context_.timeline;
    const auto now = Clock::now();
    const RequestSpec* last = nullptr;
    for (const RunPart& part : run.parts) {
      if (std::exchange(last, part.request) == part.request) continue;
      const std::string& name = part.request->name;
      timeline.span(name, "WAIT_FOR_DATA", agreed_at_, run.began);
      if (run.is_packed()) timeline.span(name, "MEMCPY_IN_FUSION_BUFFER", run.began, run.packed_at);
      timeline.span(name, collective_activity_of(*part.request), run.packed_at, run.moved);
      if (run.is_packed()) timeline.span(name, "MEMCPY_OUT_FUSION_BUFFER", run.moved, now);
      if (is_last_of(*part.request)) timeline.end(name, now);
    }
  }

  /// True if no run after the current run has tensors of the request.
  bool is_last_of(const RequestSpec& request) const {
    return std::none_of(runs_.begin() + static_cast<std::ptrdiff_t>(finished_) + 1, runs_.end(), [&](const Run& run) {
      return std::any_of(run.parts.begin(), run.parts.end(),
                         [&](const RunPart& part) { return part.request == &request; });
    });
  }

  static void deliver(Run& run, const std::optional<RequestError>& error, std::vector<Completion>& completions) {
    for (const RunPart& part : run.parts) {
      if (part.local == nullptr) continue;
      std::vector<std::int64_t> shape = part.local->shape;
      completions.push_back({std::move(*part.local), error, std::move(shape), {}, error ? nullptr : run.completed});
    }
  }

  BatchContext& context_;
  std::vector<BatchEntry> entries_;
  const RequestSpec& spec_;  // of the first entry; kind, operation, factors and root are equal in all entries
  const Timeline::Time agreed_at_;
  const bool is_direct_;
  std::unique_ptr<RunMover> on_host_, on_device_;  // made by the first run of each kind
  std::vector<Run> runs_;
  std::size_t finished_ = 0;  // runs whose completions have been added
};

}  // namespace

ConstBufferView choose_memory(Run& run, std::size_t bytes, const RequestSpec& spec) {
  const DType dtype = reduces(spec) ? run.parts.front().spec->dtype : DType::kU8;
  const std::size_t count = bytes / size_in_bytes(dtype);
  if (run.is_packed()) {
    run.values = BufferView(run.packed.view().data, count, dtype, run.packed.space());
    return run.values;
  }
  const LocalTensor& tensor = *run.parts.front().local;
  run.values = BufferView(tensor.output, count, dtype, tensor.space);
  return ConstBufferView(tensor.input, count, dtype, tensor.space);
}

std::unique_ptr<Batch> make_same_shape_batch(BatchContext& context, std::vector<BatchEntry> entries) {
  return std::make_unique<SameShapeBatch>(context, std::move(entries));
}

}  // namespace farandole
