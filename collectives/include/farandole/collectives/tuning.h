// SPDX-License-Identifier: Apache-2.0
// Tables of measured choices: written by farandole-bench --tune, read from the file that the setting FARANDOLE_TUNING
// names.
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

/// Shape of the communicators on which a table was measured, and for which it is valid. All ranks of a communicator
/// have the same shape.
struct TuningShape {
  int ranks = 1;
  int hosts = 1;
  /// Transport of messages: "inproc", "mpi", "local", "tcp", or "inproc+" and one of the last three.
  std::string transport;
  bool operator==(const TuningShape&) const = default;
};
/// "2 ranks on 1 host, mpi"
std::string describe(const TuningShape& shape);

/// True if the vendor's allreduce (MPI's) and Farandole's own define the same result. If they differ, a table must not
/// decide between them: its "vendor" entries are skipped. Overflowing sums of 8- and 16-bit integers differ: they wrap
/// here and saturate in Open MPI 4.1. Minima and maxima differ for NaN: they are NaN here, and in MPI depend on the
/// position of the NaN.
bool vendor_agrees(DType dtype, ReduceOp op);

/// The fastest algorithm for each collective and size, for host memory and for device memory.
///
/// Most programs name a file in FARANDOLE_TUNING and need no code. Use this class to give a communicator its own table,
/// or to edit a table:
///
///     TuningTable table = TuningTable::parse(text, "table.json");
///     table.of(Collective::kBroadcast).clear();  // keep the built-in choice for broadcasts
///     Communicator tuned = ranks.duplicate({.table = &table});
struct TuningTable {
  struct Entry {
    std::size_t up_to_bytes = 0;  ///< largest vector, counted as in Communicator::choose
    /// Name of an algorithm, or "hierarchical" or "vendor"; for host memory also "shared_memory" or "exchange". On host
    /// memory "vendor" is valid for allreduce only.
    std::string algorithm;
    int segments = 0;    ///< segments per chunk of an algorithm; 0: computed from the size
    double time_us = 0;  ///< measured time for a vector of about this size, in microseconds
  };
  std::string file;  ///< source of the table, for messages; to_json does not write it
  TuningShape shape;
  std::string version;  ///< version of Farandole at the measurement
  /// Measured values for FARANDOLE_ONE_SHOT_BYTES and FARANDOLE_SLICE_BYTES (shared memory). Empty: not measured.
  std::optional<std::size_t> one_shot_bytes, slice_bytes;
  /// Entries by collective, in ascending order of `up_to_bytes`. An entry applies to vectors longer than the previous
  /// entry's `up_to_bytes`. For vectors longer than the last entry's, Farandole chooses as without a table.
  using Entries = std::array<std::vector<Entry>, kCollectiveCount>;
  Entries entries, device_entries;

  const Entries& on(MemoryKind memory) const { return memory == MemoryKind::kHost ? entries : device_entries; }
  const std::vector<Entry>& of(Collective collective, MemoryKind memory = MemoryKind::kHost) const {
    return on(memory)[static_cast<std::size_t>(collective)];
  }
  std::vector<Entry>& of(Collective collective, MemoryKind memory = MemoryKind::kHost) {
    return (memory == MemoryKind::kHost ? entries : device_entries)[static_cast<std::size_t>(collective)];
  }
  /// Entry for a vector of `bytes`; null if the table has no entry for that size.
  const Entry* find(Collective collective, std::size_t bytes, MemoryKind memory = MemoryKind::kHost) const;

  /// Checks that every entry can run in a communicator of this shape. @throws InvalidArgument  names the entry
  void check() const;
  std::string to_json() const;
  /// Reads the text that `to_json` has written, and checks the table.
  /// @param file  name of the file, for messages
  /// @throws DataError  names the file, the line or the entry, and the expected value
  static TuningTable parse(std::string_view text, const std::string& file);
};

}  // namespace FARANDOLE_API
