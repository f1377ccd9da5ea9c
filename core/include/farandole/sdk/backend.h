// SPDX-License-Identifier: Apache-2.0
// Interface of a backend: how the processes of a job find each other and exchange bytes. The library that a backend
// wraps, such as an MPI, is called the vendor.
//
// To write a backend (docs/architecture.md, "Adding a backend"), implement Transport (messages between ranks),
// ProcessGroup (the joined processes: bring-up, control messages, end) and Backend (makes the process group), and
// export `farandole_backend_v1`, see BackendEntry. core/backends/mpi is an example.
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
#include "farandole/core/world.h"
#include "farandole/sdk/transport.h"
#include "farandole/sdk/vendor_call.h"

namespace farandole FARANDOLE_API {

/// A short message between processes outside all collectives: faults, the clean shutdown, and questions about ranks
/// that are late. A backend only carries control messages; their contents are the job's.
struct ControlMessage {
  enum class Kind : std::uint32_t {
    kFault,      ///< the job is poisoned: `rank`, `error_kind` and `text` say why
    kLeave,      ///< round `sequence` of the clean shutdown: `process` and its descendants in the tree are ready to end
    kQuery,      ///< asks which collective of `communicator` the ranks of the receiving process have entered
    kReply,      ///< answers a query: `rank` has last entered collective `sequence` of `communicator`
    kAllLeave,   ///< round `sequence` of the clean shutdown is over: all processes have sent kLeave
    kIsLeaving,  ///< answers a query: `process` is ready to end; all ranks of `process` have entered their last
                 ///< collective; `rank`: a rank for which `process` waits, or -1
    kMissing,    ///< answers a query: in `communicator` the sender itself waits for `rank`
    kWaitProbe,  ///< searches for a cycle of waiting ranks: a rank waits for `rank` in collective `sequence` of
                 ///< `communicator`; `text` holds a WaitProbe
    kCalls,      ///< a rank reports its calls, from number `sequence` on, for `rank` to compare; `text` holds the calls
  };
  /// Value of `communicator` in a query that asks only whether the process is leaving.
  static constexpr std::uint32_t kNoCommunicator = kMaxCommunicators;
  Kind kind = Kind::kFault;
  std::int32_t process = 0;  ///< the sending process
  std::int32_t rank = 0;
  std::uint32_t communicator = 0;
  std::uint64_t sequence = 0;
  std::uint32_t error_kind = 0;
  char text[2020] = {};
};
static_assert(sizeof(ControlMessage) == 2048);
/// Validates bytes received from process `sender` as a control message: their number, a known kind, `process` equal to
/// `sender`, a terminated text. Does not check that the ranks exist.
/// @throws TransportError  the bytes are no control message; names the sender and the problem
ControlMessage parse_control_message(std::span<const std::byte> bytes, int sender);

/// The threads that may call a process group and its transport.
enum class ThreadUse {
  kMainThreadOnly,    ///< the main thread only
  kOneThreadAtATime,  ///< any thread, but no two at the same time, including the program's own calls of the vendor; so
                      ///< Farandole makes no calls while nothing is pending
  kAnyThread,         ///< thread-safe
};

/// The vendor's own collectives among some processes (the algorithm `vendor`). Collective: all processes make the same
/// calls in the same order.
class VendorCollectives {
 public:
  virtual ~VendorCollectives() = default;
  /// True if `allreduce` supports this type with this reduction.
  virtual bool supports(DType dtype, ReduceOp op) const = 0;
  /// Starts a non-blocking allreduce. In place if `input` equals `output`. kAverage computes the sum.
  virtual std::unique_ptr<Transfer> allreduce(const void* input, void* output, std::size_t count, DType dtype,
                                              ReduceOp op) = 0;
  /// Returns a function that calls the vendor's blocking function once with these arguments and does nothing else, for
  /// benchmarks that compare with the vendor. The returned function ignores deadlines and faults of the job, and must
  /// not outlive this object or the job. The result of an in-place reduce_scatter is at the beginning of the vector.
  /// @throws InvalidArgument  the count is too large for the vendor's function
  virtual std::function<void()> blocking(const VendorCall& call) = 0;
};

/// The processes of a job, joined through a backend.
///
/// Life of a group:
///   1. Backend::join returns the group.
///   2. `allgather` serves the bring-up (identities, topology, memory of each host).
///   3. `set_topology` makes `transport` usable, and the job runs.
///   4. `leave` ends the group after a clean shutdown. After a fault the group is destroyed without `leave`.
///
/// `allgather`, `vendor_collectives` and `leave` block, and are collective over their processes. All other functions
/// are non-blocking, except for `rest`.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  /// Number of this process, from 0.
  virtual int process() const = 0;
  /// Number of processes of the job.
  virtual int process_count() const = 0;
  virtual ThreadUse thread_use() const = 0;
  /// Why threads are restricted and what to change, for error messages; empty if threads are not restricted.
  virtual std::string thread_advice() const = 0;
  /// Messages between ranks of different processes. Valid after `set_topology`.
  virtual Transport& transport() = 0;
  /// Tells the group which ranks live in which process. Called once, before the first message.
  virtual void set_topology(const Topology& topology) = 0;

  /// Gathers `bytes` bytes from every process into `all`, in the order of processes. Blocks.
  virtual void allgather(const void* mine, void* all, std::size_t bytes) = 0;
  /// Sends a control message to a process. Non-blocking; delivery is not confirmed.
  virtual void post(int process, const ControlMessage& control) = 0;
  /// Returns the next control message that has arrived, if any.
  virtual std::optional<ControlMessage> poll() = 0;
  /// True if the connection to a process has ended, and `poll` has returned all control messages of that connection.
  /// Groups that cannot detect this return false.
  virtual bool is_gone(int /*process*/) { return false; }
  /// Returns why the host of a process that is gone cannot be reached; the process may still run. Empty if the host can
  /// be reached, i.e. the process itself has ended.
  virtual std::string unreachable_reason(int /*process*/) { return {}; }
  /// True if this group implements `is_gone`.
  virtual bool detects_gone_processes() const { return false; }
  /// True if every posted control message has left this process or can no longer be sent.
  virtual bool is_flushed() = 0;
  /// Sleeps until something may have arrived, for 1 ms at most. Called by the thread that joins or leaves the job.
  virtual void rest() = 0;
  /// Sets a function that blocking calls of this group invoke from time to time while they wait. If the function
  /// throws, the blocking call throws the same exception, and the group must not be used afterwards. Returns the
  /// function set before.
  std::function<void()> while_waiting(std::function<void()> callback) {
    return std::exchange(while_waiting_, std::move(callback));
  }
  /// Makes the vendor's collectives among `processes` (ascending), or returns null if the backend has none. Blocks
  /// until all of `processes` call. `id` distinguishes communicators that are made at the same time.
  virtual std::unique_ptr<VendorCollectives> vendor_collectives(std::span<const int> processes, std::uint16_t id) = 0;
  /// Ends the group. Called after all processes have agreed to end, and everything posted has been delivered; not
  /// called after a fault.
  /// @throws Error  the backend failed; the process has not left the group
  virtual void leave() = 0;

 protected:
  /// Invokes the function set by `while_waiting`, if any. To be called from the waits of blocking functions.
  void run_wait_callback() const {
    if (while_waiting_) while_waiting_();
  }

 private:
  std::function<void()> while_waiting_;
};

/// Number of this process and size of its job, from the launcher's variables, in a job that no MPI has started.
struct LaunchedAs {
  int process = 0;    ///< number of this process, from 0
  int processes = 0;  ///< number of processes; 0 if the variables do not say
  /// Address at which process 0 listens: "node1:29500". Empty if all processes are on this host, or if MPI or PMIx
  /// connects the processes.
  std::string rendezvous;
  /// All of the above as text: "0 of 2 at node1:29500". By this text, programs that this process starts recognise
  /// variables that they have merely inherited.
  std::string text;
};

/// How a World joins a job.
struct JoinOptions {
  /// Fortran handle (MPI_Comm_c2f) of the caller's communicator to join; default: all processes of the job.
  std::optional<int> mpi_communicator;
  bool many_threads = true;  ///< true: ask the vendor to allow any thread; false: the main thread only
  LaunchedAs launched;       ///< BackendChoice::launched
  /// WorldOptions::bootstrap, for a backend that can join by it; null: the program has given none.
  const Bootstrap* bootstrap = nullptr;
};

/// A way to join a job. A plug-in has a single Backend, which lives until the process ends.
class Backend {
 public:
  virtual ~Backend() = default;
  /// "mpi_openmpi"
  virtual std::string_view name() const = 0;
  /// "Open MPI 4.1.4", for farandole-info.
  virtual std::string version() const = 0;
  /// Joins the job. Blocks until all processes of the job join. Before anything else the processes exchange their
  /// BuildClaim and call check_same_build.
  virtual std::unique_ptr<ProcessGroup> join(const Settings& settings, const JoinOptions& options) = 0;
};

/// Passed to a plug-in by the loading library. The plug-in rejects a `size_bytes` that differs from its own
/// sizeof(HostApi).
struct HostApi {
  std::uint32_t size_bytes = sizeof(HostApi);
  const char* build_id = nullptr;
};
/// Type of `farandole_backend_v1`, the only function that a plug-in exports. Returns null if HostApi::size_bytes
/// differs from the plug-in's own sizeof(HostApi).
///
/// The plug-in also exports the text `farandole_backend_build_id`: FARANDOLE_PLUGIN_BUILD_ID of
/// farandole/sdk/plugin_build.h, as compiled into the plug-in. The library compares this text with build_id() before
/// any call of the plug-in.
///
///     #define EXPORT extern "C" __attribute__((visibility("default")))
///     EXPORT const char farandole_backend_build_id[];
///     const char farandole_backend_build_id[] = FARANDOLE_PLUGIN_BUILD_ID;
///     EXPORT farandole::Backend* farandole_backend_v1(const farandole::HostApi* host) {
///       static MyBackend backend;
///       return host->size_bytes == sizeof(farandole::HostApi) ? &backend : nullptr;
///     }
using BackendEntry = Backend* (*)(const HostApi*);
/// Identifies the interface between this library and its plug-ins: version, compiler, and a digest of the public
/// headers of core (core/ and sdk/). Plug-ins must have been built with the same id.
const char* build_id();
/// Identifies the layouts that the processes of a job share in memory and in messages: version, revision of the
/// sources, byte order and word size, and a digest of the layouts that the compiler chose.
/// "0.1.0-5f3a9c2e71b0-le64-1a2b3c4d"
const char* layout_id();

/// First message between the processes of a job. Its layout never changes, so that different builds understand each
/// other.
struct BuildClaim {
  char layout[128] = {};   ///< layout_id() of the process
  char hostname[64] = {};  ///< for error messages
  std::int32_t pid = 0;
  char unused[60] = {};
};
static_assert(sizeof(BuildClaim) == 256);
/// The claim of this process.
BuildClaim own_build_claim();
/// @param claims  of all processes of the job, in the order of processes
/// @throws InvalidArgument  on every process, if two processes run different builds: names both, their hosts and ids
void check_same_build(std::span<const BuildClaim> claims);

/// The backend through which this process should join, and the reason.
struct BackendChoice {
  std::string plugin;     ///< "mpi_openmpi", "mpi_mpich", "local", "tcp", "pmix", or empty for a job of one process
  std::string reason;     ///< how the choice was made, for farandole-info and error messages
  int launched_size = 0;  ///< number of processes according to the launcher; 0 if the launcher does not say
  LaunchedAs launched;
  std::string doubt{};  ///< a warning, if this process may have been meant as part of a larger job; else empty
};
/// Chooses the backend. The first of these that applies decides (docs/clusters.md has the exact rule):
///   1. FARANDOLE_RANK and its companions
///   2. FARANDOLE_MPI=pmix
///   3. an MPI that the program has initialised
///   4. the variables of an MPI launcher or of Slurm, or FARANDOLE_MPI=openmpi or mpich
///   5. the program's Bootstrap, if it can share texts
///   6. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
/// @throws InvalidArgument  the variables contradict each other, or some are missing
BackendChoice choose_backend(const Settings& settings, const JoinOptions& options);
/// Loads a plug-in (once per process). "local", "tcp" and "pmix" are part of the library.
/// @throws Unsupported  the plug-in was not built or cannot be loaded; the message names it and the places searched
Backend& load_backend(std::string_view plugin, const Settings& settings);
/// Names of the plug-ins that can be found.
std::vector<std::string> available_backends(const Settings& settings);

}  // namespace FARANDOLE_API
