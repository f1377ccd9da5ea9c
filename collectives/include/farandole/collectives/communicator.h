// SPDX-License-Identifier: Apache-2.0
// Communicators: ordered groups of ranks and the collectives among them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "farandole/collectives/algorithms.h"
#include "farandole/collectives/tuning.h"
#include "farandole/core/buffer.h"
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
/// this rank and Mismatch on its peers. The elements of each rank (`counts`) are arguments of their own, because they
/// describe the buffers: see docs/decisions/0042.
struct CallOptions {
  /// Factor that multiplies every element of the input before the reduction: for f16, bf16 and f32 the nearest float,
  /// multiplied in float; for f64 and integers a double, see scale(). Used by allreduce, reduce and reduce_scatter, for
  /// every type but bool.
  double prescale = 1.0;
  /// Factor that multiplies every result, by the same rules. For an average the factor is divided by the number of
  /// ranks first, so that each sum is multiplied once; with the default 1 averages are exact.
  double postscale = 1.0;
  /// Name of the algorithm to run, "ring" or "shared_memory" for example; docs/algorithms.md has all names,
  /// `algorithm_names` those of one collective. Read during the call. Default: the setting of the collective
  /// (FARANDOLE_ALLREDUCE and its like), then the tuning table, then Farandole's own choice.
  std::string_view algorithm = {};
  /// Number of segments that each chunk is cut into, so that a pipelined algorithm sends one segment while it reduces
  /// the segment before. Default: 0, chosen from the size of the vector. Methods without a schedule ("shared_memory",
  /// "vendor") ignore it. Used by allreduce, broadcast, reduce, allgather and reduce_scatter, which have pipelined
  /// algorithms.
  int segments = 0;
  /// Stream whose earlier work the collective waits for, and whose later work waits for the collective: see "Devices"
  /// at Communicator. Default: none; the call returns when the result is there. For buffers in device memory only, so
  /// never for a barrier.
  StreamView stream = {};
};

/// How a new communicator works. Only the table is inherited from the communicator that it is made of.
struct CommunicatorOptions {
  /// What moves asynchronous collectives on.
  enum class Progress {
    kBackground,  ///< the progress thread of the job, and calls that wait for or test one
    kInCalls,     ///< such calls only
    kOwnThread,   ///< such calls only, which a thread of the caller's makes ten times a second at least
  };
  Progress progress = Progress::kBackground;  ///< of this rank alone
  /// Compares calls even with FARANDOLE_CHECK=off, so that `peer_has_started_next` knows of every collective. The same
  /// on all ranks.
  bool compare = false;
  /// False: collectives neither warn nor keep FARANDOLE_TIMEOUT, because the caller watches how long it waits. Ranks
  /// that are lost are still told. Of this rank alone.
  bool watch = true;
  /// Choices of algorithms, where they were measured on ranks like these. Null: those of the communicator that it is
  /// made of. Read during the call. The same on all ranks.
  const TuningTable* table = nullptr;
  /// What warnings and errors call the communicator: "communicator 'pairs' of 2 ranks". Empty: by a number. Read during
  /// the call. Of this rank alone.
  std::string_view name = {};
};

/// An asynchronous collective. Copies refer to the same one. Its buffers must outlive its completion: destroying the
/// last copy waits for it, and while an exception passes through it poisons the job first, so that no rank waits in
/// vain. Declare the Work after its buffers. When its World ends it is complete, or has failed.
class Work {
 public:
  Work() = default;
  /// Blocks until complete. @throws Error  what the collective failed with; each time it is called
  void wait();
  /// True once complete or failed. Never blocks.
  bool test();
  /// Of a collective on device memory: what is enqueued in `stream` later waits for it. Blocks until the collective is
  /// enqueued on the device, and not until it is complete. The Work may go after it; what the collective fails with
  /// later is raised by the next call on this communicator.
  /// @throws InvalidArgument  it is on host memory, or the stream is not of this rank's device   @throws Error  what it
  /// has failed with
  void wait_on(StreamView stream);
  bool valid() const { return handle_ != nullptr; }

  class State;
  explicit Work(std::shared_ptr<State> state);

 private:
  class Handle;
  std::shared_ptr<Handle> handle_;
};

/// An ordered group of ranks with its own message space.
///
/// Every collective is called by all ranks of the communicator in the same order. Each first compares what the ranks
/// called (unless FARANDOLE_CHECK=off): a disagreement raises Mismatch on every rank before data is touched, and the
/// communicator stays usable. Timeout, PeerLost, TransportError and DeviceError poison the job.
///
/// While a call runs no other thread and no peer's collective may write to its buffers. Input and output may be in
/// place where a function says so; any other overlap of input, output and counts raises InvalidArgument on that rank
/// and Mismatch on its peers, before data is touched. The `_async` forms return at once; their buffers must stay valid
/// and untouched until `wait` returns, so temporary containers do not compile; counts are copied. Blocking calls may be
/// mixed with them. One thread at a time per communicator of a rank; different communicators are independent.
/// Creation (`split`, `duplicate`) is collective over the parent and must come in the same order on all its ranks, also
/// among different parents: a rank makes one communicator at a time.
/// **Devices.** Buffers whose `space` is that of a CUDA device are reduced and moved there, all buffers of a call, on
/// all ranks, on the device of each rank: see `device`. A call takes its input as it is when the caller's stream has
/// come to the moment of the call; without a stream in the options that is the device's default stream. Without a
/// stream a call returns when the result is there. With one it returns when it is enqueued: what comes into that stream
/// later waits for the result, and buffers must stay until then. Which ranks call what is compared on the host, as for
/// host memory. The device operations of a rank run one after another, in an order that all ranks agree on, so that
/// communicators may be used in different orders on different ranks.
///
/// Copies refer to the same communicator. One that is default-constructed or moved from raises InvalidArgument in every
/// call but `valid`. One that outlives its World still knows `rank`, `size`, `describe` and their like; all
/// collectives, `split`, `duplicate` and `allocate` raise InvalidArgument, or the fault that the job had.
class Communicator {
 public:
  Communicator() = default;
  /// All ranks of the job. Collective over them. @throws DataError  the file of FARANDOLE_TUNING holds no valid table;
  /// on all ranks
  static Communicator of_world(World& world, int replica = 0);

  int rank() const;
  int size() const;
  int local_rank() const;  ///< among the job's ranks on this host
  int local_size() const;
  int host_index() const;
  int host_count() const;
  /// "rank 3 (host node7, pid 4711)" of a rank of this communicator.
  std::string describe(int rank) const;
  const Settings& settings() const;

  /// `output` = reduction of all ranks' `input`. In place: `output` is `input`.
  /// @param input   `count` elements of any DType.   @param output  as many, of the same type.
  /// @throws Mismatch, InvalidArgument  `output` is unchanged.   @throws PeerLost, Timeout, TransportError
  /// Cost of the ring: 2(P-1) rounds, 2N(P-1)/P bytes sent per rank; docs/algorithms.md has the others.
  void allreduce(ConstBufferView input, BufferView output, ReduceOp op, const CallOptions& options = {});
  void allreduce(BufferView values, ReduceOp op, const CallOptions& options = {}) {
    allreduce(values, values, op, options);
  }
  Work allreduce_async(AsyncInput input, BufferView output, ReduceOp op, const CallOptions& options = {});
  Work allreduce_async(BufferView values, ReduceOp op, const CallOptions& options = {}) {
    return allreduce_async(values, values, op, options);
  }

  /// Every rank's `values` become those of `root`.
  void broadcast(BufferView values, int root, const CallOptions& options = {});
  Work broadcast_async(BufferView values, int root, const CallOptions& options = {});

  /// `output` on `root` = reduction of all ranks' `input`. On other ranks `output` is ignored and may be empty.
  /// In place: `output` is `input`.
  void reduce(ConstBufferView input, BufferView output, ReduceOp op, int root, const CallOptions& options = {});
  Work reduce_async(AsyncInput input, BufferView output, ReduceOp op, int root, const CallOptions& options = {});

  /// `output` = all ranks' inputs, in order of rank. `counts[r]` elements come from rank r; empty: `input.count` from
  /// each. In place: `input` lies at its place in `output`.
  void allgather(ConstBufferView input, BufferView output, std::span<const std::size_t> counts = {},
                 const CallOptions& options = {});
  Work allgather_async(AsyncInput input, BufferView output, std::span<const std::size_t> counts = {},
                       const CallOptions& options = {});

  /// `output` = this rank's part of the reduction of all ranks' `input`. Rank r's part has `counts[r]` elements; empty:
  /// equal parts. In place: `output` lies at its place in `input`.
  void reduce_scatter(ConstBufferView input, BufferView output, ReduceOp op, std::span<const std::size_t> counts = {},
                      const CallOptions& options = {});
  Work reduce_scatter_async(AsyncInput input, BufferView output, ReduceOp op, std::span<const std::size_t> counts = {},
                            const CallOptions& options = {});

  /// `output` on `root` = all ranks' inputs, in order of rank; `counts` as in allgather, the same on all ranks.
  /// In place on `root`, as in allgather.
  void gather(ConstBufferView input, BufferView output, int root, std::span<const std::size_t> counts = {},
              const CallOptions& options = {});
  Work gather_async(AsyncInput input, BufferView output, int root, std::span<const std::size_t> counts = {},
                    const CallOptions& options = {});

  /// `output` = this rank's part of `root`'s `input`; `counts` as in reduce_scatter, the same on all ranks.
  /// In place on `root`, as in reduce_scatter.
  void scatter(ConstBufferView input, BufferView output, int root, std::span<const std::size_t> counts = {},
               const CallOptions& options = {});
  Work scatter_async(AsyncInput input, BufferView output, int root, std::span<const std::size_t> counts = {},
                     const CallOptions& options = {});

  /// Part r of `input` goes to rank r; `output` = the parts that the ranks sent here, in order of rank. The counts have
  /// one entry per rank; empty: equal parts. What rank a sends to b must be what b expects from a. In place:
  /// `output` begins where `input` begins.
  void alltoall(ConstBufferView input, BufferView output, std::span<const std::size_t> send_counts = {},
                std::span<const std::size_t> recv_counts = {}, const CallOptions& options = {});
  Work alltoall_async(AsyncInput input, BufferView output, std::span<const std::size_t> send_counts = {},
                      std::span<const std::size_t> recv_counts = {}, const CallOptions& options = {});

  /// Returns once every rank has called it.
  void barrier(const CallOptions& options = {});
  Work barrier_async(const CallOptions& options = {});

  /// A new communicator of the ranks that pass the same `color`, ordered by `key`, then by rank. A negative color gets
  /// an invalid one. Collective; blocks.
  /// @throws InvalidArgument  the table of `options` is wrong.   @throws Mismatch  the options of ranks of one color
  /// differ where they must not
  Communicator split(int color, int key = 0, const CommunicatorOptions& options = {});
  /// A new communicator of the same ranks. Collective; blocks. @throws  as `split`
  Communicator duplicate(const CommunicatorOptions& options = {});
  bool valid() const { return state_ != nullptr; }

  /// `count` zeroed elements in a window: memory that all ranks of the host have mapped. Collectives on it need no
  /// copies. Ordinary memory where ranks share none. Of this rank alone; does not block. Released memory is used again.
  /// @throws InvalidArgument  the windows of this host would outgrow the machine
  Buffer allocate(std::size_t count, DType dtype);
  /// The memory of this rank's device, for `allocate` and for views. Opens it: FARANDOLE_DEVICE says which one it is,
  /// else the local rank. @throws InvalidArgument  there is none; says why
  MemorySpace device();
  /// `count` zeroed elements in `space`: a window, or memory of this rank's device. Released memory is used again, so
  /// let the device finish with it before. Blocks for the device's zeroing.
  /// @throws InvalidArgument  it is another device's   @throws DeviceError  there is no more memory
  Buffer allocate(std::size_t count, DType dtype, MemorySpace space);
  /// True if all ranks live on one host, and exchange data through memory that they share.
  bool shares_memory() const;

  /// What would run for this call and why, for farandole-info --explain.
  std::string explain(Collective collective, std::size_t bytes, MemoryKind memory = MemoryKind::kHost) const;
  /// The name of the algorithm that would run.
  std::string choose(Collective collective, std::size_t bytes, MemoryKind memory = MemoryKind::kHost) const;
  /// "inproc", "mpi", "local", "tcp", or "inproc+" one of the last three; of several, the one between hosts.
  std::string transport() const;
  /// What a table of measured choices must have been measured on to hold here.
  TuningShape tuning_shape() const;
  /// Bytes that this process has sent in messages to other processes; what passes through shared memory is not among
  /// them.
  std::uint64_t sent_bytes() const;
  /// Poisons the job: every rank raises PeerLost with this text, in its pending collective or its next one. Waits for
  /// no rank; returns when the flight records are written. Does nothing after a fault or the World's end.
  void abort(std::string_view text);

  // The rest is for layers that drive a communicator from a thread of their own, as the engine does.

  /// True if another rank has begun the next collective of this communicator, and this one has not. Never blocks. Known
  /// once the communicator has had a collective. With FARANDOLE_CHECK=off not all algorithms let every rank know,
  /// unless the communicator was made with `compare`.
  bool peer_has_started_next();
  /// The ranks that have not begun the oldest asynchronous collective that is pending here, as far as is known, each as
  /// in warnings: "rank 3 (host node7, pid 4711) has entered only collective 10". Empty if there is none. Never blocks.
  std::string describe_missing();
  /// This rank's slot in the job.
  Endpoint& endpoint() const;

  class State;

 private:
  friend class CommunicatorProbe;  // tests give it a past
  State& state() const;
  [[noreturn]] static void throw_empty();
  explicit Communicator(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// The root's text, on every rank; what the other ranks pass is ignored. Collective; blocks. Cost: two broadcasts.
std::string broadcast_text(Communicator& ranks, std::string text, int root);

/// Runs `body` on `replicas` threads, each with its own rank of a job of this process only, and returns when all have.
/// @throws  the first exception that left a body; the other ranks were woken with PeerLost.
void run_replicas(int replicas, const std::function<void(Communicator&)>& body);
/// The same with the ranks that live in this process of a larger job; `body` runs once per replica of `world`.
void run_replicas(World& world, const std::function<void(Communicator&)>& body);

}  // namespace FARANDOLE_API
