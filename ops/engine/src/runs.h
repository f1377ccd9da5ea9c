// SPDX-License-Identifier: Apache-2.0
// Runs: the collectives of a batch whose outputs have the shape of their inputs.
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

/// The data of a collective: a tensor in place, or several tensors in a fusion buffer. All are in memory of one kind.
struct Run {
  std::vector<RunPart> parts;
  std::size_t bytes = 0;         ///< of all parts
  std::size_t packed_bytes = 0;  ///< of the parts one behind the other in a fusion buffer
  Buffer packed;
  BufferView values;
  Work work;
  std::shared_ptr<DeviceEvent> completed;        ///< device memory: after the unpacking
  Timeline::Time began{}, packed_at{}, moved{};  ///< set if the timeline is on

  MemoryKind memory() const { return parts.front().spec->memory; }
  bool is_packed() const { return parts.size() > 1 || parts.front().local == nullptr; }
  bool has_joined_part() const {
    return std::any_of(parts.begin(), parts.end(), [](const RunPart& part) { return part.local == nullptr; });
  }
};

/// Bytes that a tensor takes in a fusion buffer. On a device each tensor begins at a multiple of 64 bytes, so that the
/// kernels move whole words; what lies between is reduced, too, and never read.
inline std::size_t packed_size(const TensorSpec& spec) {
  constexpr std::size_t kAlignment = 64;
  const std::size_t bytes = spec.size_in_bytes();
  return spec.memory == MemoryKind::kHost ? bytes : (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// True if the run is of an allreduce, else of a broadcast, which moves all types as bytes.
inline bool reduces(const RequestSpec& spec) {
  return spec.kind == RequestKind::kAllreduce;
}

/// Chooses the memory of a run's collective: the fusion buffer, which the mover has taken, or the tensor's own. Sets
/// `run.values`, and returns the input.
/// @param bytes  of the collective   @param spec  of the run's requests
ConstBufferView choose_memory(Run& run, std::size_t bytes, const RequestSpec& spec);

/// Factor of the collective's inputs. Neutral values must not be scaled: where this rank has joined for a part of the
/// run, packing scales the other parts, and the factor is 1.
inline double prescale_of(const Run& run, const RequestSpec& spec) {
  return run.has_joined_part() ? 1.0 : spec.prescale;
}

/// Moves the data of runs. All runs of a mover belong to requests of the same kind, operation, factors and root.
class RunMover {
 public:
  virtual ~RunMover() = default;
  /// Packs the run, and starts its collective. Non-blocking. @throws Error
  virtual void begin(Run& run) = 0;
  /// Returns true once the outputs are there; on a device, once all work is enqueued that writes them, and the tensors'
  /// streams wait for it. Non-blocking. @throws Error
  virtual bool finish(Run& run) = 0;
};

/// @param context, spec  outlive the mover
std::unique_ptr<RunMover> make_host_mover(BatchContext& context, const RequestSpec& spec);
/// @param is_direct  see DeviceLane
std::unique_ptr<RunMover> make_device_mover(BatchContext& context, const RequestSpec& spec, bool is_direct);

}  // namespace farandole
