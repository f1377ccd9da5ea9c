// SPDX-License-Identifier: Apache-2.0
// How the processes of a job on one host find each other without MPI.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sockets/descriptor.h"

namespace farandole::local {

/// Identifies a process to its peer. Sent as raw bytes. The layout of this struct never changes, so that different
/// builds understand each other's hello and can report the difference.
struct Hello {
  std::int32_t process = 0;
  std::int32_t processes = 0;
  std::int32_t pid = 0;
  char layout[116] = {};  ///< the beginning of layout_id(), which identifies the build

  std::string_view layout_text() const { return layout; }
};
static_assert(sizeof(Hello) == 128);

/// The hello of this process.
Hello make_hello(int process, int processes);
/// Parses a packet. Checks its size, 0 <= process < processes, pid > 0, and that the layout is a text.
/// @throws TransportError  says what is wrong
Hello parse_hello(std::span<const std::byte> packet);

using sockets::UniqueDescriptor;

/// A job, and the place of this process in it.
struct LocalJob {
  std::string name;   ///< the same for all processes, 1 to 64 bytes
  int process = 0;    ///< number of this process
  int processes = 1;  ///< number of processes in the job
  /// The first warning that names the missing processes comes after this time. The pauses between warnings double.
  std::chrono::duration<double> warn_after{30};
  std::chrono::duration<double> timeout{0};  ///< 0: waits for ever
};

/// Connections with all other processes of the job.
struct Rendezvous {
  UniqueDescriptor listener;              ///< as long as it is open, no other process can take this process's number
  std::vector<UniqueDescriptor> sockets;  ///< by process, SOCK_STREAM, non-blocking; empty for this process itself
};

/// Connects this process with every other process of its job. Collective over the processes of the job. Blocks.
///
/// Protocol: each process listens on a Unix socket in Linux's abstract name space, whose name consists of user, job
/// name and process number. (Abstract names have no files, so nothing stays behind however a process ends.) A process
/// connects to all processes with lower numbers, and tries again until they listen; it accepts connections from
/// processes with higher numbers. Both ends send a Hello first. Connections of other users are rejected.
/// @throws InvalidArgument  the job's name is empty or too long; another process has this process's number; a process
/// of another user listens under a lower number; or another process was given a different number of processes, or runs
/// another build
/// @throws PeerLost  a process ended after it had connected with this process, and before this process had connected
/// with all others
/// @throws Timeout  names the processes that are missing   @throws TransportError  a system call failed
Rendezvous join_job(const LocalJob& job);

}  // namespace farandole::local
