// SPDX-License-Identifier: Apache-2.0
// The secret of a job: a process that has it is one of the job's.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "farandole/core/settings.h"

namespace farandole::tcp {

/// 256 bits. It travels by the launcher's or MPI's way only, and never over a connection that it authenticates.
using JobKey = std::array<unsigned char, 32>;

/// From the kernel's random numbers. @throws TransportError  the kernel has none
std::array<unsigned char, 32> random_256_bits();

inline JobKey make_job_key() {
  return random_256_bits();
}

/// What process 0 makes for all processes where MPI or PMIx can tell them. Sent as these bytes.
struct JobSecret {
  JobKey key{};
  std::uint64_t job = 0;  ///< number of the job
};
static_assert(sizeof(JobSecret) == 40);
/// A new one. @throws TransportError  the kernel has no random numbers
JobSecret make_job_secret();

/// What tells a job that no MPI has started from other jobs.
struct JobName {
  std::string rendezvous;  ///< "node1:29500"
  std::string job;         ///< FARANDOLE_JOB; may be empty
};
std::uint64_t job_number(const JobName& name);

/// A key whose source is gone once it has been read. Thread-safe.
class KeptKey {
 public:
  /// A forked child may use what it holds.
  static KeptKey& of_process();
  std::optional<JobKey> get();
  void put(const JobKey& key);

 private:
  static std::mutex& mutex_of_process() { return of_process().mutex_; }
  std::mutex mutex_;
  std::optional<JobKey> key_;  // guarded by mutex_
};

/// The key of a job that no MPI has started, by one of four ways: FARANDOLE_JOB_KEY_FD, FARANDOLE_JOB_KEY_FILE,
/// FARANDOLE_JOB_KEY, or FARANDOLE_TRUST_NETWORK=on, which is a key that every program can compute from the name, and
/// so no protection. What programs that this process starts must not have is taken away at the first call: the
/// descriptor is closed, and the variables with it and with the key itself are removed; later calls with the same
/// `kept` return the same key. Blocks until a pipe has brought a line or 64 characters.
/// @throws InvalidArgument  none of the four, or several; or a file that another user can read or has made; or it holds
/// no key. No message shows any of a key
JobKey read_job_key(const Settings& settings, const JobName& name, KeptKey& kept);

}  // namespace farandole::tcp
