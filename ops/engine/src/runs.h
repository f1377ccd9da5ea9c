// SPDX-License-Identifier: Apache-2.0
// Runs: the collectives of a batch of allreduces or broadcasts, whose outputs have the shapes of their inputs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "batch.h"

namespace farandole {

/// A tensor within a run.
struct RunPart {
  const TensorSpec* spec = nullptr;
  LocalTensor* local = nullptr;  ///< null: this rank has joined, and contributes neutral values
  const RequestSpec* request = nullptr;
};

/// A collective and its data: one tensor, in the caller's memory, or several tensors that are packed into a fusion
/// buffer. All tensors are in the same kind of memory.
struct Run {
  std::vector<RunPart> parts;
  std::size_t bytes = 0;                   ///< of all parts
  std::size_t packed_bytes = 0;            ///< of all parts in a fusion buffer, see `packed_size`
  Buffer packed;                           ///< the fusion buffer; empty if the run is not packed
  BufferView values;                       ///< output of the collective: in `packed`, or the tensor's output
  Work work;                               ///< not valid if the collective was enqueued directly on the device
  std::shared_ptr<DeviceEvent> completed;  ///< device memory: complete after the unpacking; null: not enqueued yet
  Timeline::Time began{}, packed_at{}, moved{};  ///< set only if the timeline is on

  MemoryKind memory() const { return parts.front().spec->memory; }
  bool is_packed() const { return parts.size() > 1 || parts.front().local == nullptr; }
  bool has_joined_part() const {
    return std::any_of(parts.begin(), parts.end(), [](const RunPart& part) { return part.local == nullptr; });
  }
};

/// Bytes that a tensor takes in a fusion buffer. On a device each tensor begins at a multiple of 64 bytes, so that the
/// kernels move whole words. The collective also reduces the padding, which nothing reads afterwards.
inline std::size_t packed_size(const TensorSpec& spec) {
  constexpr std::size_t kAlignment = 64;
  const std::size_t bytes = spec.size_in_bytes();
  return spec.memory == MemoryKind::kHost ? bytes : (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// True for an allreduce. False for a broadcast, which moves all types as bytes.
inline bool reduces(const RequestSpec& spec) {
  return spec.kind == RequestKind::kAllreduce;
}

/// Chooses the memory of a run's collective: the fusion buffer `run.packed`, which the mover has taken before, or the
/// tensor's own memory. Sets `run.values`, the output, and returns the input.
/// @param bytes  size of the collective's data   @param spec  description of a request of the run
ConstBufferView choose_memory(Run& run, std::size_t bytes, const RequestSpec& spec);

/// Returns the collective's factor of the inputs. Neutral values must not be scaled: if this rank has joined for a part
/// of the run, packing scales the other parts, and this factor is 1.
inline double prescale_of(const Run& run, const RequestSpec& spec) {
  return run.has_joined_part() ? 1.0 : spec.prescale;
}

/// Moves the data of runs, on the host or on a device. All runs of a mover belong to requests of the same kind,
/// operation, factors and root.
class RunMover {
 public:
  virtual ~RunMover() = default;
  /// Packs the run and starts its collective. Non-blocking. @throws Error
  virtual void begin(Run& run) = 0;
  /// Unpacks the run once its collective is complete. Returns true once the outputs are written; on a device, once the
  /// work that writes the outputs is enqueued, and the tensors' streams wait for it. Non-blocking. @throws Error
  virtual bool finish(Run& run) = 0;
};

/// @param context, spec  must outlive the mover
std::unique_ptr<RunMover> make_host_mover(BatchContext& context, const RequestSpec& spec);
/// @param is_direct  see DeviceLane
std::unique_ptr<RunMover> make_device_mover(BatchContext& context, const RequestSpec& spec, bool is_direct);

}  // namespace farandole
