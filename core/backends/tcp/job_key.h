// SPDX-License-Identifier: Apache-2.0
// Secret key of a job: a process that has the key belongs to the job.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "farandole/core/settings.h"

namespace farandole::tcp {

/// A 256-bit key. Distributed by the launcher or by MPI only, never over a connection that the key authenticates.
using JobKey = std::array<unsigned char, 32>;

/// Returns random bits from the kernel. @throws TransportError  the kernel has none
std::array<unsigned char, 32> random_256_bits();

/// Returns a new random key. @throws TransportError  the kernel has no random numbers
inline JobKey make_job_key() {
  return random_256_bits();
}

/// Key and number of a job, made by process 0 and distributed by MPI or PMIx. Sent as bytes.
struct JobSecret {
  JobKey key{};
  std::uint64_t job = 0;  ///< number of the job
};
static_assert(sizeof(JobSecret) == 40);
/// Returns a new random secret. @throws TransportError  the kernel has no random numbers
JobSecret make_job_secret();
/// The secret as hexadecimal digits, for programs that share texts.
std::string to_text(const JobSecret& secret);
/// @throws TransportError  the text is not a secret of `to_text`; the message holds no part of the text
JobSecret parse_secret(std::string_view text);

/// Distinguishes jobs that were started without MPI.
struct JobName {
  std::string rendezvous;  ///< "node1:29500"
  std::string job;         ///< FARANDOLE_JOB; may be empty
};
/// Number of the job with this name: a hash, equal in all processes.
std::uint64_t job_number(const JobName& name);

/// Keeps a key that can be read from its source only once. Thread-safe.
class KeptKey {
 public:
  /// The instance of this process. Usable in forked children.
  static KeptKey& of_process();
  std::optional<JobKey> get();
  void put(const JobKey& key);

 private:
  static std::mutex& mutex_of_process() { return of_process().mutex_; }
  std::mutex mutex_;
  std::optional<JobKey> key_;  // guarded by mutex_
};

/// Returns the key of a job that was started without MPI, from exactly one source: FARANDOLE_JOB_KEY_FD,
/// FARANDOLE_JOB_KEY_FILE, FARANDOLE_JOB_KEY, or FARANDOLE_TRUST_NETWORK=on. FARANDOLE_TRUST_NETWORK derives the key
/// from the job's name, which every program can do, and so protects nothing.
///
/// The first call takes the secret away from programs that this process starts later: it closes the descriptor, and
/// removes the variables that hold the descriptor or the key. Later calls with the same `kept` return the same key.
/// Blocks until a pipe has delivered a line or 64 characters, or its writers have closed it.
/// @throws InvalidArgument  no source is set and `kept` has no key; several sources are set; the file belongs to
/// another user, or another user can read it; or the source cannot be read or holds no key. No message contains any
/// part of a key
JobKey read_job_key(const Settings& settings, const JobName& name, KeptKey& kept);

}  // namespace farandole::tcp
