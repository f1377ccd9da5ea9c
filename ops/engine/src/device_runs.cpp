// SPDX-License-Identifier: Apache-2.0
// Runs of tensors in the memory of a device.
#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "farandole/internal/average.h"
#include "runs.h"

namespace farandole {
namespace {

/// Enqueues a run in the lane's stream: waits for the inputs, one batched kernel that packs, the collective, one
/// batched kernel that unpacks, and an event for which the tensors' streams wait. If the collective is not enqueued
/// directly (DeviceLane), the kernel that unpacks is enqueued once the collective is complete.
class DeviceMover final : public RunMover {
 public:
  DeviceMover(BatchContext& context, const RequestSpec& spec, bool is_direct)
      : context_(context), lane_(context.device), spec_(spec), is_direct_(is_direct) {}

  void begin(Run& run) override {
    lane_.begin(is_direct_);
    lane_.count_collective();
    for (const RunPart& part : run.parts) {
      if (part.local != nullptr) lane_.wait_for_input(*part.local);
    }
    if (run.is_packed()) run.packed = lane_.take(run.packed_bytes);
    // All ranks must use the same size. A lone tensor is packed only on ranks that have joined, so its size must not
    // depend on whether this rank packs.
    const std::size_t bytes = run.parts.size() > 1 ? run.packed_bytes : run.bytes;
    const ConstBufferView input = choose_memory(run, bytes, spec_);
    if (run.is_packed()) pack(run);
    run.packed_at = context_.timeline.now();
    start(run, input);
    if (!run.work.valid()) complete(run);
  }

  bool finish(Run& run) override {
    if (run.completed != nullptr) return true;
    if (!run.work.test()) return false;
    run.work.wait();
    complete(run);
    return true;
  }

 private:
  bool is_root() const { return context_.communicator.rank() == spec_.root; }

  void start(Run& run, ConstBufferView input) {
    if (reduces(spec_)) {
      run.work = context_.communicator.allreduce_async(
          input, run.values, spec_.op,
          {.prescale = prescale_of(run, spec_), .postscale = spec_.postscale, .stream = lane_.stream()});
      return;
    }
    if (is_root() && input.data != run.values.data) lane_.copy(run.values.data, input.data, run.bytes);
    run.work = context_.communicator.broadcast_async(run.values, spec_.root, {.stream = lane_.stream()});
  }

  void pack(Run& run) {
    std::vector<DeviceTask> tasks;
    auto* to = static_cast<std::byte*>(run.values.data);
    const bool scales = spec_.prescale != 1.0 && run.has_joined_part();
    for (const RunPart& part : run.parts) {
      const TensorSpec& spec = *part.spec;
      if (part.local == nullptr) {
        lane_.fill_neutral(to, spec.count(), spec.dtype, spec_.op);
      } else if (spec.count() > 0 && (reduces(spec_) || is_root())) {
        const double factor = scales ? user_factor(spec_.prescale, spec.dtype) : 1.0;
        tasks.push_back(DeviceTask::scale(spec.dtype, to, part.local->input, spec.count(), factor));
      }
      to += packed_size(spec);
    }
    lane_.launch(tasks);
  }

  void complete(Run& run) {
    run.moved = context_.timeline.now();
    if (run.is_packed()) unpack(run);
    run.completed = lane_.record();
    std::vector<void*> waiting;  // streams
    for (const RunPart& part : run.parts) {
      if (part.local == nullptr) continue;
      void* const stream = part.local->stream.handle;
      if (std::find(waiting.begin(), waiting.end(), stream) != waiting.end()) continue;
      lane_.finish(*part.local, *run.completed);
      waiting.push_back(stream);
    }
  }

  void unpack(Run& run) {
    std::vector<DeviceTask> tasks;
    const auto* from = static_cast<const std::byte*>(run.values.data);
    for (const RunPart& part : run.parts) {
      const TensorSpec& spec = *part.spec;
      if (part.local != nullptr && spec.count() > 0) {
        tasks.push_back(DeviceTask::scale(spec.dtype, part.local->output, from, spec.count()));
      }
      from += packed_size(spec);
    }
    if (!reduces(spec_)) keep_last_of_each_output(tasks);
    lane_.launch(tasks);
    lane_.give_back(std::move(run.packed));
  }

  /// Drops all but the last task of each output: tensors of a broadcast may share an output, and as on the host, the
  /// last tensor wins.
  static void keep_last_of_each_output(std::vector<DeviceTask>& tasks) {
    std::unordered_set<const void*> written;
    std::vector<DeviceTask> kept;
    for (auto task = tasks.rbegin(); task != tasks.rend(); ++task) {
      if (written.insert(task->output).second) kept.push_back(*task);
    }
    tasks.swap(kept);
  }

  BatchContext& context_;
  DeviceLane& lane_;
  const RequestSpec& spec_;
  const bool is_direct_;
};

}  // namespace

std::unique_ptr<RunMover> make_device_mover(BatchContext& context, const RequestSpec& spec, bool is_direct) {
  return std::make_unique<DeviceMover>(context, spec, is_direct);
}

}  // namespace farandole
