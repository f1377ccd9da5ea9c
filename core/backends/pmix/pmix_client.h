// SPDX-License-Identifier: Apache-2.0
// A job that a launcher has started and PMIx describes: `srun --mpi=pmix`, and Open MPI's mpirun. The program needs no
// MPI.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "farandole/core/settings.h"

namespace farandole::pmix {

/// This process, as its launcher's PMIx server knows it. The connection with the server is made by the first join of
/// the process, and ends with the process. Use from one thread at a time.
class PmixClient {
 public:
  /// Most bytes of a text that `share` takes: the servers of PMIx keep it, on every host, for as long as the job runs.
  static constexpr std::size_t kMaxSharedBytes = 64 << 10;

  /// Loads PMIx's library and connects with the PMIx server of this host, unless the process has done so before.
  /// Concerns no other process, so it waits for none.
  /// @param settings  FARANDOLE_PMIX_LIBRARY; and FARANDOLE_WARN_AFTER and FARANDOLE_TIMEOUT, which hold for `share`
  /// @throws Unsupported  this build has no PMIx; or the library is missing, too old, or none of PMIx: names the file
  /// @throws InvalidArgument  no PMIx launcher has started this process, or it is a forked child of one that has joined
  /// @throws TransportError  PMIx fails: names the function, the library, its version, and the status
  static std::unique_ptr<PmixClient> join(const Settings& settings);
  PmixClient(const PmixClient&) = delete;
  PmixClient& operator=(const PmixClient&) = delete;
  virtual ~PmixClient() = default;

  virtual int process() const = 0;
  virtual int processes() const = 0;
  /// The namespace of PMIx: the same text in all processes of the job; the launcher gives no other job of its own that
  /// name at the time.
  virtual std::string job() const = 0;
  /// Returns the text of process 0 in every process; the other processes pass an empty one. It may hold any bytes, and
  /// every program of the job's user that may talk to the launcher's servers can read it.
  /// Collective over the processes of the job, all of which call as often. Blocks until process 0 has called; no
  /// process waits for any other. The servers forget what process 0 has shared when it ends: before that it must know
  /// by other means that all processes have got it.
  /// @throws Timeout  process 0 has not called within FARANDOLE_TIMEOUT   @throws TransportError  as `join`
  /// @throws InvalidArgument  the text is longer than kMaxSharedBytes
  virtual std::string share(std::string_view of_process_0) = 0;
  /// "PMIx 4.2.2 (/usr/lib/libpmix.so.2), namespace slurm.pmix.17.0"
  virtual std::string describe() const = 0;

 protected:
  PmixClient() = default;
};

}  // namespace farandole::pmix
