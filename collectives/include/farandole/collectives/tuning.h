// SPDX-License-Identifier: Apache-2.0
// Tables of measured choices: made by farandole-bench --tune, read by FARANDOLE_TUNING.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/collectives/algorithms.h"
#include "farandole/core/buffer.h"
#include "farandole/core/dtype.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// What kind of communicator a table was measured on, and holds for. The same on all ranks of a communicator.
struct TuningShape {
  int ranks = 1;
  int hosts = 1;
  std::string transport;  ///< of messages: "inproc", "mpi", "local", "tcp", or "inproc+" one of the last three
  bool operator==(const TuningShape&) const = default;
};
/// "2 ranks on 1 host, mpi"
std::string describe(const TuningShape& shape);

/// Whether the vendor's allreduce gives what ours gives; else a table may not decide between them, and its entries that
/// say "vendor" are passed over. Sums of 8- and 16-bit integers that do not fit wrap round here, and saturate in Open
/// MPI 4.1. Minima and maxima of NaN are NaN here, and in MPI depend on where the NaN stands.
bool vendor_agrees(DType dtype, ReduceOp op);

/// What was fastest, by collective and size; of host memory and of device memory apart.
struct TuningTable {
  struct Entry {
    std::size_t up_to_bytes = 0;  ///< of the whole vector, as in Communicator::choose
    /// Of a schedule, "hierarchical", or "vendor"; of host memory also "shared_memory" and "exchange", and "vendor" for
    /// allreduce only.
    std::string algorithm;
    int segments = 0;    ///< of a schedule; 0: from the size
    double time_us = 0;  ///< that was measured
  };
  std::string file;  ///< where it was read, for messages; not written
  TuningShape shape;
  std::string version;  ///< of Farandole, when it was measured
  // In shared memory, what FARANDOLE_ONE_SHOT_BYTES and FARANDOLE_SLICE_BYTES set. Nothing: not measured.
  std::optional<std::size_t> one_shot_bytes, slice_bytes;
  /// By collective, ascending. Above the last entry Farandole chooses as it does without a table.
  using Entries = std::array<std::vector<Entry>, kCollectiveCount>;
  Entries entries, device_entries;

  const Entries& on(MemoryKind memory) const { return memory == MemoryKind::kHost ? entries : device_entries; }
  const std::vector<Entry>& of(Collective collective, MemoryKind memory = MemoryKind::kHost) const {
    return on(memory)[static_cast<std::size_t>(collective)];
  }
  std::vector<Entry>& of(Collective collective, MemoryKind memory = MemoryKind::kHost) {
    return (memory == MemoryKind::kHost ? entries : device_entries)[static_cast<std::size_t>(collective)];
  }
  /// Null if there is none.
  const Entry* find(Collective collective, std::size_t bytes, MemoryKind memory = MemoryKind::kHost) const;

  /// Whether all can run in a communicator of this shape. @throws InvalidArgument  names the entry
  void check() const;
  std::string to_json() const;
  /// Reads what `to_json` has written, and checks it.
  /// @param file  for messages. @throws DataError  names the file, the line or the entry, and what was expected
  static TuningTable parse(std::string_view text, const std::string& file);
};

}  // namespace FARANDOLE_API
