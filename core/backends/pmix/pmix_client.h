// SPDX-License-Identifier: Apache-2.0
// Client of PMIx: bring-up of a job that `srun --mpi=pmix` or Open MPI's mpirun has started. The program needs no MPI.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "farandole/core/settings.h"

namespace farandole::pmix {

/// This process's access to the launcher's PMIx server: number and count of processes, and distribution of texts of
/// process 0. The first `join` connects to the server; the connection ends with the process. One thread at a time.
class PmixClient {
 public:
  /// Maximum length of a text for `share`, in bytes. The PMIx servers keep each text on every host until the job ends.
  static constexpr std::size_t kMaxSharedBytes = 64 << 10;

  /// Loads PMIx's library and connects to the PMIx server of this host, unless the process has done so before. Does not
  /// wait for other processes.
  /// @param settings  FARANDOLE_PMIX_LIBRARY; FARANDOLE_WARN_AFTER and FARANDOLE_TIMEOUT apply to later calls of
  /// `share`
  /// @throws Unsupported  this build has no PMIx, or the library is missing, too old, or not PMIx: names the file
  /// @throws InvalidArgument  no PMIx launcher has started this process, or this is a forked child of a joined process
  /// @throws TransportError  PMIx fails: names the function, the library, its version, and the status
  static std::unique_ptr<PmixClient> join(const Settings& settings);
  PmixClient(const PmixClient&) = delete;
  PmixClient& operator=(const PmixClient&) = delete;
  virtual ~PmixClient() = default;

  /// Number of this process, from 0.
  virtual int process() const = 0;
  /// Number of processes of the job.
  virtual int processes() const = 0;
  /// PMIx's namespace: a text that is the same in all processes of the job, and different from every other job that the
  /// launcher runs at the same time.
  virtual std::string job() const = 0;
  /// Returns the text of process 0 in every process. Process 0 passes the text, which may hold any bytes; all other
  /// processes pass an empty text. Not a secret from the job's user: every program of that user that can reach the
  /// launcher's servers can read the text.
  ///
  /// Collective: all processes of the job make the same number of calls. Blocks until process 0 has called; process 0
  /// does not block. The servers drop the text when process 0 ends, so process 0 must learn by other means that all
  /// processes have received the text.
  /// @throws Timeout  process 0 has not called within FARANDOLE_TIMEOUT   @throws TransportError  as `join`
  /// @throws InvalidArgument  the text is longer than kMaxSharedBytes
  virtual std::string share(std::string_view of_process_0) = 0;
  /// "PMIx 4.2.2 (/usr/lib/libpmix.so.2), namespace slurm.pmix.17.0"
  virtual std::string describe() const = 0;

 protected:
  PmixClient() = default;
};

}  // namespace farandole::pmix
