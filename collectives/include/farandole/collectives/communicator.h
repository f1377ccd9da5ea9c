// SPDX-License-Identifier: Apache-2.0
// Communicators: ordered groups of ranks, the nine collectives among their ranks, and messages between two ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "farandole/collectives/algorithms.h"
#include "farandole/collectives/tuning.h"
#include "farandole/collectives/work.h"
#include "farandole/core/buffer.h"
#include "farandole/core/error.h"
#include "farandole/core/export.h"
#include "farandole/core/stream.h"
#include "farandole/core/world.h"

namespace farandole FARANDOLE_API {

/// Options of one collective: the last argument of every collective and of its `_async` form. The defaults suit most
/// calls.
///
///   ranks.allreduce(gradients, ReduceOp::kSum, {.postscale = 1.0 / samples});
///   ranks.broadcast(weights, /*root=*/0, {.algorithm = "binomial", .segments = 8});
///   ranks.allgather(part, all, counts, {.stream = stream});
///
/// All ranks must pass the same `algorithm`, `segments` and `postscale`; `prescale` and `stream` may differ from rank
/// to rank. A field that a collective does not use must keep its default: otherwise the call raises InvalidArgument on
/// this rank and Mismatch on its peers. The numbers of elements per rank (`counts`) are separate arguments, because
/// they describe the buffers: see docs/decisions/0042.
struct CallOptions {
  /// Factor that multiplies every element of the input before the reduction. For f16, bf16 and f32 the factor is
  /// rounded to float and multiplied in float; for f64 and integers it is a double, see scale(). Used by allreduce,
  /// reduce and reduce_scatter, for every type but bool and every operation but the bitwise ones.
  double prescale = 1.0;
  /// Factor that multiplies every result, by the rules of `prescale`. For an average the factor is first divided by the
  /// number of ranks, so that each sum is multiplied once. With the default 1 averages are exact.
  double postscale = 1.0;
  /// Name of the algorithm to run, for example "ring" or "shared_memory". docs/algorithms.md lists all names,
  /// `algorithm_names` returns the names for one collective. Read during the call only. Default: the collective's
  /// setting decides (such as FARANDOLE_ALLREDUCE), then the tuning table, then Farandole's own choice.
  std::string_view algorithm = {};
  /// Number of segments into which each chunk is cut: 1 … kMaxSegments (1024). A pipelined algorithm sends one segment
  /// while it reduces the previous segment. Default: 0, chosen from the size of the vector. Used by the collectives
  /// with pipelined algorithms: allreduce, broadcast, reduce, allgather and reduce_scatter. Methods without a schedule
  /// ("shared_memory", "vendor") ignore the number.
  int segments = 0;
  /// Stream in which the collective takes its place: the collective waits for work enqueued earlier, and work enqueued
  /// later waits for the collective (see "Devices" at Communicator). Default: none; the call returns when the result is
  /// complete. For buffers in device memory only, so never for a barrier.
  StreamView stream = {};
};

/// Options of a new communicator, for `split`, `duplicate` and `of_members`.
///
///   Communicator control = ranks.duplicate({.compare = true, .name = "control"});
///
/// `table` defaults to the parent's; the parent's other options are not inherited.
struct CommunicatorOptions {
  /// Threads that advance asynchronous collectives.
  enum class Progress {
    kBackground,  ///< the progress thread of the job, and calls that wait for or test a collective
    kInCalls,     ///< only calls that wait for or test a collective
    kOwnThread,   ///< as kInCalls, with such a call at least ten times a second from a thread of the caller
  };
  /// Default: kBackground. May differ from rank to rank.
  Progress progress = Progress::kBackground;
  /// Order in which calls on device memory are enqueued. docs/gpu.md says which order to choose.
  enum class DeviceOrder {
    /// Ranks compare each call and agree on its place among all device operations, so ranks may use their communicators
    /// in different orders. Costs a comparison, an agreement and a hand-off to another thread per call.
    kAgreed,
    /// The calling thread enqueues a call with a stream in that stream, as NCCL does, without messages to other ranks.
    /// All ranks must make the calls of all kCaller communicators that share devices in the same order. Calls are
    /// compared after they were enqueued: if calls differ or a rank does not make a call, Farandole reports the fault
    /// and ends the process, see FARANDOLE_DEVICE_FAULT. A call that has run once may be captured into a graph; a
    /// replay that does not end is reported in the same way. docs/gpu.md lists the calls that use the agreed order
    /// nevertheless. An invalid call raises InvalidArgument on its rank only.
    kCaller,
  };
  /// Default: kAgreed. Must be the same on all ranks.
  DeviceOrder device_order = DeviceOrder::kAgreed;
  /// True: ranks compare their calls even with FARANDOLE_CHECK=off, so each rank learns when a peer has begun the next
  /// collective. Default: false, the setting decides. Must be the same on all ranks.
  bool compare = false;
  /// False: collectives neither warn about stalls nor fail at FARANDOLE_TIMEOUT, because the caller watches its waiting
  /// time itself; lost ranks are still reported. Default: true. May differ from rank to rank.
  bool watch = true;
  /// Time after which a call of this communicator fails with Timeout on every rank, which poisons the job. Default 0:
  /// the setting FARANDOLE_TIMEOUT. May differ from rank to rank. Ignored if `watch` is false.
  Seconds timeout{0};
  /// Measured choices of algorithms; they apply if the table's shape is the new communicator's. Copied during the call.
  /// Default: null, the parent's table. Must be the same on all ranks.
  const TuningTable* table = nullptr;
  /// Name in warnings and errors: "communicator 'pairs' of 2 ranks". Copied during the call. Default: empty, messages
  /// use a number. May differ from rank to rank.
  std::string_view name = {};
};

/// One message of Communicator::exchange. The caller owns the memory.
struct PeerMessage {
  enum class Direction : std::uint8_t { kSend, kReceive };
  Direction direction = Direction::kSend;
  BufferView values;  ///< read only if `direction` is kSend
  int peer = 0;       ///< rank in the communicator
  int tag = 0;

  static PeerMessage send(ConstBufferView values, int target, int tag = 0) {
    return {Direction::kSend, {const_cast<void*>(values.data), values.count, values.dtype, values.space}, target, tag};
  }
  static PeerMessage recv(BufferView values, int source, int tag = 0) {
    return {Direction::kReceive, values, source, tag};
  }
};

/// Position of a rank among the hosts of its job. Counts all ranks of the job, including ranks outside the
/// communicator.
struct Placement {
  int local_rank = 0;  ///< index among the ranks of this host
  int local_size = 1;  ///< ranks of this host
  int host_index = 0;  ///< index of this host
  int host_count = 1;  ///< hosts of the job
};

/// An ordered group of ranks with its own message space. Use `of_world` for collectives among all ranks of the job,
/// `split` for groups of ranks, and `duplicate` for a second sequence of collectives among the same ranks, for example
/// on another thread.
///
///   World world;
///   Communicator ranks = Communicator::of_world(world);
///   std::vector<float> gradients = …;
///   ranks.allreduce(gradients, ReduceOp::kAverage);
///   Communicator half = ranks.split(ranks.rank() % 2);
///
/// **Order.** All ranks of a communicator call the same collectives in the same order. Each collective first compares
/// the calls of all ranks (unless FARANDOLE_CHECK=off): if they differ, Mismatch is raised on every rank before data is
/// touched. A call that is invalid on one rank raises InvalidArgument on that rank and Mismatch on its peers. The
/// communicator stays usable after both errors. Timeout, PeerLost, TransportError and DeviceError poison the job.
/// Messages (`send`, `recv`) have an order of their own, see there. (Calls on devices in the caller's order are
/// compared afterwards, see CommunicatorOptions::DeviceOrder.)
///
/// **Buffers.** While a collective runs, no other thread and no peer's collective may write to the collective's
/// buffers. Input and output may share memory where a function says "in place"; any other overlap of input, output and
/// counts raises InvalidArgument. The `_async` forms return a Work without blocking. Their buffers must stay valid and
/// untouched until `Work::wait` returns, so passing a temporary container does not compile. Counts and options are
/// copied.
///
/// **Threads.** Only one thread at a time may use a communicator. Threads may use different communicators concurrently.
/// Messages are an exception: any thread may send and receive, even while another thread uses the communicator.
///
/// **Devices.** Buffers in the memory of a CUDA device are reduced and moved on that device. If one buffer of a call is
/// in device memory, all buffers on every rank must be in the memory of that rank's own device: see `device`. Without
/// `CallOptions::stream` the collective is ordered after work already enqueued on the device's default stream, and the
/// call returns when the result is complete. With a stream the collective is ordered after work already enqueued on
/// that stream, and the call returns when the collective is enqueued. Work that is enqueued later on the stream waits
/// for the result; buffers must stay valid until the result is complete. Ranks compare their calls on the host, as for
/// host memory. The device operations of a rank run one after another, in an order on which all ranks agree, so ranks
/// may use several communicators in different orders. With CommunicatorOptions::DeviceOrder::kCaller, calls are
/// enqueued immediately: without a comparison before, and without the agreed order.
///
/// Copies refer to the same communicator. A communicator that is default-constructed or moved from raises
/// InvalidArgument in every function but `valid`. A communicator that outlives its World still answers `rank`, `size`,
/// `placement` and `describe`; all collectives and messages, `split`, `duplicate`, `of_members`, `allocate`, `device`
/// and `trim_device_memory` raise InvalidArgument, or the fault of the job.
class Communicator {
 public:
  Communicator() = default;
  /// The communicator of all ranks of the job. Collective over all ranks of the job.
  /// @throws DataError  on all ranks: the file of FARANDOLE_TUNING holds no valid table
  /// @throws InvalidArgument  this replica has made the communicator before (use `duplicate`), or does not exist
  static Communicator of_world(World& world, int replica = 0);

  int rank() const;
  int size() const;
  Placement placement() const;
  /// Text for messages about a rank of this communicator: "rank 3 (host node7, pid 4711)".
  std::string describe(int rank) const;
  /// True if all ranks live on one host and exchange data through shared memory.
  bool shares_memory() const;

  /// Reduces all ranks' `input` to `output`, on every rank.
  /// @param input   `count` elements of any DType   @param output  as many elements of the same DType; in place:
  /// `output` is `input`
  /// @throws Mismatch, InvalidArgument  `output` is unchanged   @throws PeerLost, Timeout, TransportError
  /// All other collectives throw the same errors. Cost of the ring: 2(P-1) rounds, 2N(P-1)/P bytes sent per rank;
  /// docs/algorithms.md has all algorithms.
  void allreduce(ConstBufferView input, BufferView output, ReduceOp op, const CallOptions& options = {});
  /// In place.
  void allreduce(BufferView values, ReduceOp op, const CallOptions& options = {}) {
    allreduce(values, values, op, options);
  }
  Work allreduce_async(AsyncInput input, BufferView output, ReduceOp op, const CallOptions& options = {});
  Work allreduce_async(BufferView values, ReduceOp op, const CallOptions& options = {}) {
    return allreduce_async(values, values, op, options);
  }

  /// Copies the root's `values` to the `values` of every other rank.
  /// Cost of the binomial tree: ⌈log₂P⌉ rounds; the root sends N⌈log₂P⌉ bytes.
  void broadcast(BufferView values, int root, const CallOptions& options = {});
  Work broadcast_async(BufferView values, int root, const CallOptions& options = {});

  /// Reduces all ranks' `input` to `output` on `root`. The other ranks' `output` is ignored and may be empty. In place:
  /// `output` is `input`.
  void reduce(ConstBufferView input, BufferView output, ReduceOp op, int root, const CallOptions& options = {});
  Work reduce_async(AsyncInput input, BufferView output, ReduceOp op, int root, const CallOptions& options = {});

  /// Concatenates all ranks' inputs in the order of ranks, in every rank's `output`. In place: `input` is this rank's
  /// part of `output`.
  /// @param counts  elements of each rank's input, the same list on all ranks; empty: every rank has `input.count`
  void allgather(ConstBufferView input, BufferView output, std::span<const std::size_t> counts = {},
                 const CallOptions& options = {});
  Work allgather_async(AsyncInput input, BufferView output, std::span<const std::size_t> counts = {},
                       const CallOptions& options = {});

  /// Reduces all ranks' `input`, and gives each rank its part of the result. In place: `output` is this rank's part of
  /// `input`.
  /// @param counts  elements of each rank's part, the same list on all ranks; empty: equal parts
  void reduce_scatter(ConstBufferView input, BufferView output, ReduceOp op, std::span<const std::size_t> counts = {},
                      const CallOptions& options = {});
  Work reduce_scatter_async(AsyncInput input, BufferView output, ReduceOp op, std::span<const std::size_t> counts = {},
                            const CallOptions& options = {});

  /// Concatenates all ranks' inputs in the order of ranks, in the root's `output`. The other ranks' `output` is
  /// ignored. In place on the root: `input` is the root's part of `output`.
  /// @param counts  as in allgather
  void gather(ConstBufferView input, BufferView output, int root, std::span<const std::size_t> counts = {},
              const CallOptions& options = {});
  Work gather_async(AsyncInput input, BufferView output, int root, std::span<const std::size_t> counts = {},
                    const CallOptions& options = {});

  /// Gives each rank its part of the root's `input`. The other ranks' `input` is ignored. In place on the root:
  /// `output` is the root's part of `input`.
  /// @param counts  as in reduce_scatter
  void scatter(ConstBufferView input, BufferView output, int root, std::span<const std::size_t> counts = {},
               const CallOptions& options = {});
  Work scatter_async(AsyncInput input, BufferView output, int root, std::span<const std::size_t> counts = {},
                     const CallOptions& options = {});

  /// Sends part r of `input` to rank r; `output` gets the parts that all ranks have sent to this rank, in the order of
  /// ranks. In place: `output` begins where `input` begins.
  /// @param send_counts  elements for each rank   @param recv_counts  elements from each rank; rank a's send count for
  /// rank b must be rank b's receive count from rank a. Empty lists: equal parts
  void alltoall(ConstBufferView input, BufferView output, std::span<const std::size_t> send_counts = {},
                std::span<const std::size_t> recv_counts = {}, const CallOptions& options = {});
  Work alltoall_async(AsyncInput input, BufferView output, std::span<const std::size_t> send_counts = {},
                      std::span<const std::size_t> recv_counts = {}, const CallOptions& options = {});

  /// Blocks until every rank has called `barrier`.
  void barrier(const CallOptions& options = {});
  Work barrier_async(const CallOptions& options = {});

  /// Source of a receive that takes a message from any rank.
  static constexpr int kAnySource = -1;
  /// Sends `values` to rank `target`, which receives them with `recv`. Messages from one rank with one tag arrive in
  /// the order in which they were sent. Messages do not depend on the order of collectives, nor of messages in other
  /// communicators. A rank may send to itself.
  ///
  ///   if (ranks.rank() == 0) ranks.send(activations, /*target=*/1);
  ///   if (ranks.rank() == 1) ranks.recv(activations, /*source=*/0);
  ///
  /// Host memory: a message of up to 8 KiB is copied, so the call returns without the receiver. A longer message blocks
  /// until the receiver has the values: to itself, a rank sends it with `send_async`.
  ///
  /// Device memory: sender and receiver both pass memory of their own devices, and the vendor's library moves the
  /// values. There are no tags, no receives from any source, and messages to the rank itself in `exchange` only. With
  /// `stream` the message is ordered after work already enqueued there, later work waits for it, and the call returns
  /// when it is enqueued; without, it returns when the values have arrived. Like collectives, messages follow the
  /// device order of the communicator. In the agreed order the two ranks compare the message before data is touched. In
  /// the caller's order a message with a stream is enqueued without the peer and compared afterwards, and it can be
  /// captured into a graph once an equal message has run. The first message between two ranks, in either direction,
  /// connects them: it blocks until both have made their first. In the caller's order both ranks pass a stream to
  /// `send` and `recv`, or neither does. docs/gpu.md has the rules.
  ///
  /// @param tag  0 or more; the receiver names the same. Device memory: 0
  /// @param stream  device memory only; default: none
  /// @throws Mismatch  a long message met a receive of another count or type, or the receiver has destroyed its
  /// communicator; in device memory any message of another count or type, on both ranks. The communicator stays usable;
  /// in the caller's order the job is poisoned instead
  /// @throws InvalidArgument  no such rank, a negative tag, memory or a stream of another device; nothing was sent
  /// @throws Unsupported  device memory with a tag or from any source   @throws PeerLost, Timeout, TransportError,
  /// DeviceError  the job is poisoned; a message to a rank that passes memory of the other kind ends as Timeout
  void send(ConstBufferView values, int target, int tag = 0, StreamView stream = {});
  /// The same without blocking. Any number of sends may be pending. On devices such a message takes the agreed order.
  Work send_async(AsyncInput values, int target, int tag = 0, StreamView stream = {});
  /// Receives the oldest message with this tag from rank `source`, or from any rank. Blocks until `values` is complete,
  /// or with a stream until the message is enqueued. Returns the rank of the sender.
  /// @param values  with the count and the type that the sender passes
  /// @throws Mismatch  the message has another count or type; `values` is unchanged, the message is dropped, and the
  /// communicator stays usable. All other errors as `send`.
  int recv(BufferView values, int source, int tag = 0, StreamView stream = {});
  /// The same without blocking; `Work::source` returns the rank of the sender. Any number of receives may be pending: a
  /// message completes the oldest receive that it matches.
  Work recv_async(BufferView values, int source, int tag = 0, StreamView stream = {});
  /// Sends and receives several messages that proceed at the same time, so that no message waits for another message
  /// of the list, whatever the order of the list; in device memory in the agreed order the device runs them one after
  /// another. The peers may use `exchange`, `send` or `recv`. An empty list is a no-op.
  ///
  ///   ranks.exchange({{PeerMessage::send(last_row, next), PeerMessage::recv(halo, previous)}}, stream);
  ///
  /// Blocks until all messages are complete, or with a stream until they are enqueued. A rank may exchange messages
  /// with itself; in device memory its n-th receive from itself gets its n-th message to itself.
  /// @param messages  all in host memory, or all in device memory   @param stream  as in `send`
  /// @throws  as `send` and `recv`: the first error in the order of the list, once all messages have ended. After an
  /// error in a captured stream, end the capture and drop the graph, which may hold some of the messages.
  /// InvalidArgument for one message: nothing was sent
  void exchange(std::span<const PeerMessage> messages, StreamView stream = {});

  /// Returns a new communicator of the ranks that pass the same `color`, ordered by `key`, then by rank. A rank that
  /// passes a negative color gets an invalid communicator. Collective over this communicator; blocks. Threads may
  /// create communicators of different parents at the same time. Cost: an allgather of 72 bytes per rank; if the ranks
  /// use different numbers of communicators, usually two allreduces more, of 4 KiB and 16 bytes.
  /// @throws InvalidArgument  the table in `options` is invalid, or too many communicators exist
  /// @throws Mismatch  ranks of one color pass different values of `compare`, `device_order` or `table`
  Communicator split(int color, int key = 0, const CommunicatorOptions& options = {});
  /// Returns a new communicator of the same ranks in the same order. Collective; blocks. @throws  as `split`
  Communicator duplicate(const CommunicatorOptions& options = {});
  /// Returns a new communicator of `ranks`, which are ranks of `parent`, in this order. Collective over `ranks` only:
  /// the parent's other ranks do not call it. Blocks. Cost: a message of 4 KiB from each rank to the lowest rank, and a
  /// short one back; if the ranks use different numbers of communicators, usually twice.
  ///
  ///   if (ranks.rank() % 2 == 0) Communicator even = Communicator::of_members(ranks, {{0, 2, 4}});
  ///
  /// @throws InvalidArgument  `ranks` is empty, does not include the caller, names a rank twice, or names a rank that
  /// does not exist; otherwise as `split`   @throws Mismatch  members pass different lists, or as `split`
  static Communicator of_members(Communicator& parent, std::span<const int> ranks,
                                 const CommunicatorOptions& options = {});
  bool valid() const { return state_ != nullptr; }

  /// Allocates `count` zeroed elements in `space`. Not collective.
  /// Host memory (the default) is a window: memory that all ranks of the host have mapped, so that collectives need no
  /// copies. If the ranks of this host do not share memory, it is ordinary memory.
  /// For the memory of this rank's device pass `device()`; the call blocks until the device has zeroed the elements.
  /// Released device memory is kept for later calls of `allocate`, and reused once the collectives that use it have
  /// ended. Farandole tracks only collectives: before you release memory, let the device finish your own kernels and
  /// replays of graphs that use it.
  /// @throws InvalidArgument  the windows of this host would outgrow the machine, or `space` is another device
  /// @throws DeviceError  the device has no memory left
  Buffer allocate(std::size_t count, DType dtype, MemorySpace space = {});
  /// The memory of this rank's device, for `allocate` and for views. Opens the device that WorldOptions::devices or
  /// else FARANDOLE_DEVICE selects; default: the only device that the process sees, else the device whose number is the
  /// local rank.
  /// @throws InvalidArgument  there is no device; the text says why
  MemorySpace device();
  /// Returns unused memory to the driver: device memory and pinned host memory that this rank has released and
  /// Farandole keeps for reuse. Use it in programs that share the device with another library, between phases that need
  /// different memory; later allocations call the driver again. Returns the number of bytes: 0 if no memory is unused,
  /// or if no rank of this process has used a device.
  ///
  /// Not collective. Blocks until all collectives that this rank has enqueued have ended, and then while the driver
  /// frees the memory. The driver may block every thread of the process until the device is idle. So during this call
  /// no other thread of the rank may make calls, and no kernel or graph may be running that waits for another thread of
  /// the process.
  /// @throws InvalidArgument  this rank has no device, and another rank of the process has one
  /// @throws DeviceError  the device has failed   @throws Error  the job's fault; Timeout if a collective does not end
  std::size_t trim_device_memory();

  /// Poisons the job: every rank raises PeerLost with this text, in its pending collective or its next collective.
  /// Returns once the flight records are written; does not wait for other ranks. No-op after a fault or the end of the
  /// World.
  void abort(std::string_view text);

  class State;

 private:
  friend class CommunicatorAccess;  // for the engine, the tools and the tests
  State& state() const;
  [[noreturn]] static void throw_empty();
  explicit Communicator(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// Returns the root's text on every rank; the other ranks' `text` is ignored. Collective; blocks. Cost: two broadcasts.
std::string broadcast_text(Communicator& ranks, std::string text, int root);

/// Runs `body` on `replicas` threads. The threads are the ranks of a job inside this process. Returns when `body` has
/// returned on every thread. Use it for programs on one machine without a launcher, and for tests.
///
///   run_replicas(4, [](Communicator& ranks) { ranks.barrier(); });
///
/// If a `body` throws, the other ranks raise PeerLost in their collectives. A rank that goes on nevertheless, because
/// it computes or hangs, is waited for; a second after the first rank has ended with an error, one line of the log
/// names the error and the ranks that still run.
/// @throws  the exception of the rank that failed by itself, or else the first exception that a `body` throws
void run_replicas(int replicas, const std::function<void(Communicator&)>& body);
/// Runs `body` once per rank of `world` that lives in this process, each on its own thread. @throws  as above
void run_replicas(World& world, const std::function<void(Communicator&)>& body);

}  // namespace FARANDOLE_API
