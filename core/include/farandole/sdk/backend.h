// SPDX-License-Identifier: Apache-2.0
// What a plug-in gives to Farandole: a way to join a job's processes and to move bytes between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "farandole/core/buffer.h"
#include "farandole/core/export.h"
#include "farandole/core/settings.h"
#include "farandole/core/topology.h"
#include "farandole/sdk/transport.h"

namespace farandole FARANDOLE_API {

/// A short control message between processes outside every collective: faults, the clean shutdown, and questions about
/// late ranks.
struct ControlMessage {
  enum class Kind : std::uint32_t {
    kFault,      ///< the job is poisoned: `rank`, `error_kind` and `text` say why
    kLeave,      ///< `process`, and all below it in the tree, want to end: round `sequence` of the clean shutdown
    kQuery,      ///< which collective of `communicator` have your ranks entered?
    kReply,      ///< `rank` has entered `sequence` of `communicator`
    kAllLeave,   ///< all processes have said so: round `sequence` is over
    kIsLeaving,  ///< answers a query: `process` wants to end; all its ranks have entered their last collective
    kMissing,    ///< answers a query: in `communicator` the sender waits for `rank`
    kWaitProbe,  ///< a rank waits for `rank` in `sequence` of `communicator`: does that wait for it? `text`: a
                 ///< WaitProbe
  };
  /// A query with this asks about no communicator, but whether the process leaves.
  static constexpr std::uint32_t kNoCommunicator = kMaxCommunicators;
  Kind kind = Kind::kFault;
  std::int32_t process = 0;  ///< the sender
  std::int32_t rank = 0;
  std::uint32_t communicator = 0;
  std::uint64_t sequence = 0;
  std::uint32_t error_kind = 0;
  char text[2020] = {};
};
static_assert(sizeof(ControlMessage) == 2048);
/// The control message that has come from process `sender`: of a known kind, in the name of its sender, its text
/// terminated. Whose ranks it speaks of is not looked at. @throws TransportError  these bytes are none; names the
/// sender and what is wrong
ControlMessage parse_control_message(std::span<const std::byte> bytes, int sender);

/// From which threads the process group may be used.
enum class ThreadUse {
  kMainThreadOnly,
  kOneThreadAtATime,  ///< threads of the program among them: it is left alone while nothing is pending
  kAnyThread,
};

/// A collective with equal counts, as a vendor's blocking functions take it. In allgather, gather, reduce_scatter,
/// scatter and alltoall one side, or both, holds one part per rank. In place where `input` equals `output`, or, in
/// allgather, gather and scatter, where the rank's own part lies at its place in the other side's vector.
struct VendorCall {
  enum class Kind : std::uint8_t {
    kAllreduce,
    kBroadcast,  ///< `output` only
    kReduce,
    kAllgather,
    kReduceScatter,  ///< in place the result lies at the beginning of the vector
    kGather,
    kScatter,
    kAlltoall,
    kBarrier,
  };
  Kind kind = Kind::kBarrier;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  ///< elements of a part where there are parts, else of the vector
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;  ///< kAverage sums
  int root = 0;                  ///< among the processes of the VendorCollectives
};

/// The vendor's own collectives among some processes (the algorithm `vendor`). Calls are made in the same order by all.
class VendorCollectives {
 public:
  virtual ~VendorCollectives() = default;
  virtual bool supports(DType dtype, ReduceOp op) const = 0;
  /// Starts an allreduce; `input` may equal `output`. kAverage sums.
  virtual std::unique_ptr<Transfer> allreduce(const void* input, void* output, std::size_t count, DType dtype,
                                              ReduceOp op) = 0;
  /// The vendor's blocking function with these arguments, to be compared with: each call of what is returned runs it
  /// once and adds nothing to it, so that it knows neither deadlines nor the job's faults. Must not outlive this object
  /// nor the job. @throws InvalidArgument  the count is more than the function can take
  virtual std::function<void()> blocking(const VendorCall& call) = 0;
};

/// The processes of a job, joined through one backend. The blocking calls are collective over all processes and are
/// used while a job is joined or left; everything else never blocks. Leaves the job when destroyed.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  virtual int process() const = 0;
  virtual int process_count() const = 0;
  virtual ThreadUse thread_use() const = 0;
  /// Why threads are restricted and what to change, for messages; empty if they are not.
  virtual std::string thread_advice() const = 0;
  /// Bytes between ranks of different processes; valid after `set_topology`.
  virtual Transport& transport() = 0;
  virtual void set_topology(const Topology& topology) = 0;

  /// Gathers `bytes` bytes of every process into `all`, in order of processes. Blocks.
  virtual void allgather(const void* mine, void* all, std::size_t bytes) = 0;
  /// Sends a control message, and forgets it.
  virtual void post(int process, const ControlMessage& control) = 0;
  /// The next control message that has arrived, if any.
  virtual std::optional<ControlMessage> poll() = 0;
  /// True if the connection to a process has ended, and all that came over it has been polled, where the group can
  /// tell.
  virtual bool is_gone(int /*process*/) { return false; }
  /// Of a process that is gone: why, if its host is not reached any more, which does not say that the process has
  /// ended.
  virtual std::string why_out_of_reach(int /*process*/) { return {}; }
  /// Whether `is_gone` ever says so.
  virtual bool tells_who_is_gone() const { return false; }
  /// True if all control messages that were posted have left this process, or never will.
  virtual bool is_flushed() = 0;
  /// Sleeps until something may have arrived, 1 ms at most. For the thread that joins or leaves the job.
  virtual void rest() = 0;
  /// Called now and then while a blocking call waits; what it throws ends the call, and the group is of no use any
  /// more. Returns what was called before.
  std::function<void()> while_waiting(std::function<void()> look) {
    return std::exchange(while_waiting_, std::move(look));
  }
  /// The vendor's collectives among `processes` (ascending; collective over them, blocks), or null if there are none.
  /// `id` tells apart what is made for different communicators at the same time.
  virtual std::unique_ptr<VendorCollectives> vendor_collectives(std::span<const int> processes, std::uint16_t id) = 0;
  /// Ends the group. All processes have agreed to that, and nothing that was posted is left. Not called after a fault.
  /// @throws Error  the backend failed; the group is not left then
  virtual void leave() = 0;

 protected:
  void look_while_waiting() const {
    if (while_waiting_) while_waiting_();
  }

 private:
  std::function<void()> while_waiting_;
};

/// What a process knows of its job before it meets its peers, where no MPI has started it.
struct LaunchedAs {
  int process = 0;    ///< this process's number
  int processes = 0;  ///< how many there are; 0: nothing is known
  /// Where process 0 listens: "node1:29500". Empty: all processes are on this host, or an MPI knows.
  std::string rendezvous;
  /// All of it, for programs that this process starts and that inherit the variables: "0 of 2 at node1:29500".
  std::string text;
};

/// How a World wants to join.
struct JoinOptions {
  /// Fortran handle (MPI_Comm_c2f) of a communicator of the caller's; else all processes of the job.
  std::optional<int> mpi_communicator;
  bool many_threads = true;  ///< ask the vendor for use from any thread; else for a program of one thread
  LaunchedAs launched;       ///< of the BackendChoice
};

/// One way to join a job.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  /// "Open MPI 4.1.4", for farandole-info.
  virtual std::string version() const = 0;
  virtual std::unique_ptr<ProcessGroup> join(const Settings& settings, const JoinOptions& options) = 0;
};

/// What a plug-in is told about the library that loads it; it refuses another size.
struct HostApi {
  std::uint32_t size_bytes = sizeof(HostApi);
  const char* build_id = nullptr;
};
/// The one function of a plug-in, `farandole_backend_v1`. Returns null if the size differs from its own. Beside it the
/// text `farandole_backend_build_id` is FARANDOLE_PLUGIN_BUILD_ID of farandole/sdk/plugin_build.h, as the plug-in was
/// compiled with it: the library compares it with its own before it calls the plug-in.
using BackendEntry = Backend* (*)(const HostApi*);
/// Identifies what this library and its plug-ins share: version, compiler, and a digest of the headers of the core.
/// Plug-ins must have the same.
const char* build_id();
/// Identifies what the processes of a job share, in memory and in messages: version, revision of the sources, and how
/// the compiler has laid them out. "0.1.0-5f3a9c2e71b0-le64-1a2b3c4d"
const char* layout_id();

/// What each process sends its peers before anything else. Builds that differ must understand it: it never
/// changes.
struct BuildClaim {
  char layout[128] = {};   ///< its layout_id()
  char hostname[64] = {};  ///< for messages
  std::int32_t pid = 0;
  char unused[60] = {};
};
static_assert(sizeof(BuildClaim) == 256);
BuildClaim own_build_claim();
/// @param claims  of all processes of the job, in their order
/// @throws InvalidArgument  on every process: two of them run different builds; names both, their hosts and ids
void check_same_build(std::span<const BuildClaim> claims);

/// How this process should join, and how that was found out.
struct BackendChoice {
  std::string plugin;  ///< "mpi_openmpi", "mpi_mpich", "local", "tcp", "pmix", or empty for a job of one process
  std::string reason;
  int launched_size = 0;  ///< processes that the launcher says it started; 0 if it says nothing
  LaunchedAs launched;
  std::string doubt{};  ///< a warning for a job of one process that may have been meant as one of several; or empty
};
/// FARANDOLE_RANK and its companions, else a loaded libmpi, else the MPI launcher's variables, else RANK and its
/// companions, else FARANDOLE_MPI. docs/clusters.md has the rule.
/// @throws InvalidArgument  these contradict each other, or one of the companions is missing
BackendChoice choose_backend(const Settings& settings, const JoinOptions& options);
/// Loads a plug-in (once per process); "local", "tcp" and "pmix" are part of the library. @throws Unsupported  not
/// built or not loadable; the message says which and where it looked.
Backend& load_backend(std::string_view plugin, const Settings& settings);
/// The plug-ins that can be found, by name.
std::vector<std::string> available_backends(const Settings& settings);

}  // namespace FARANDOLE_API
