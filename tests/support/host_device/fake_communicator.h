// SPDX-License-Identifier: Apache-2.0
// One rank's side of a communicator. One host thread at a time uses it; its items run in streams.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "cuda/nccl_api.h"
#include "fake_devices.h"
#include "fake_messages.h"
#include "fake_segment.h"

namespace farandole::fake {

/// Text of the last error of this process, which ncclGetLastError returns. Thread-safe.
void set_last_error(const std::string& text);
std::string last_error();

/// Object behind an ncclComm_t. Lives until the process ends, so that late items and calls find it.
class Communicator : public Handle {
 public:
  Communicator(Device& owner, int rank_here, int ranks)
      : Handle(Kind::kCommunicator), device(owner), rank(rank_here), size(ranks) {}
  Device& device;
  const int rank;
  const int size;

  /// Takes this rank's place in the communicator. Non-blocking.
  cuda::ncclResult_t join(const cuda::ncclUniqueId& id);
  /// Blocks until all ranks have called `join`; for ever, if a rank never does.
  cuda::ncclResult_t wait_for_ranks(const cuda::ncclUniqueId& id);

  /// Tells the peers of these messages that this rank is ready to connect. Non-blocking.
  void offer_connections(const std::vector<Message>& messages);
  /// Blocks until this rank and the peers of these messages are connected.
  cuda::ncclResult_t wait_for_connections(const std::vector<Message>& messages);
  /// A group of calls. The groups of a communicator run one after another even in different streams, as in NCCL.
  struct Group {
    Stream* stream = nullptr;
    std::vector<Message> messages;
    std::vector<std::function<void(Random&)>> begins, finishes;
    Uses uses;
  };
  /// Appends a group to its stream, or to the graph into which the stream is captured.
  void enqueue(Group group);
  /// Number of groups that are in graphs.
  int captured_groups() const { return captured_groups_.load(std::memory_order_relaxed); }

  /// Returns the first error so far, including asynchronous errors (ncclCommGetAsyncError).
  cuda::ncclResult_t error();
  /// Records an error; the first error counts. Thread-safe.
  void fail(cuda::ncclResult_t error, const std::string& text);
  std::string error_text() const;
  std::uint64_t idle_polls() const { return idle_polls_.load(std::memory_order_relaxed); }

  /// Blocks until all enqueued groups are complete. Returns false if the communicator was aborted meanwhile.
  bool drain() const;
  /// Ends all operations in flight. Thread-safe.
  void abort();
  /// Unmaps the shared memory. No operation may be in flight.
  void close();
  bool is_finalized = false;
  std::vector<std::optional<double>> factors;  ///< of the reductions that ncclRedOpCreatePreMulSum has made

  std::atomic<std::uint32_t> calling_thread{0};  ///< number of the thread in a call (CommunicatorCall); 0: none

 private:
  using ChannelKey = std::tuple<Message::Direction, MessageClass, int>;
  std::atomic<std::uint32_t>& own_flag(const Message& message);
  std::atomic<std::uint32_t>& flag_of_peer(const Message& message);
  cuda::ncclResult_t compare_devices();
  void run(std::uint32_t turn, MessageGroup& group, Random& random);
  void skip();
  void capture(Capture& graph, Group group);
  void enqueue_again(const Group& captured, Stream& stream);
  bool wait_for_turn(std::uint32_t turn);
  bool must_stop();
  void look_at_peers();
  void report_broken();

  std::mutex close_mutex_;  // makes `close` wait until `error` has returned, which any thread may call
  Segment* segment_ = nullptr;
  std::vector<int> watches_;  // see watch_process, one for each peer's process; constant until `close`
  std::set<ChannelKey> connected_;
  std::map<ChannelKey, std::uint64_t> next_numbers_;
  std::uint32_t next_turn_ = 0;
  std::atomic<std::uint32_t> finished_turns_{0};  // release: run; acquire: wait_for_turn
  std::atomic<std::int64_t> pending_{0};          // number of items; release: run; acquire: drain
  std::atomic<std::int64_t> running_{0};          // number of items; sequentially consistent with is_aborted_
  std::atomic<int> captured_groups_{0};           // number of groups in graphs
  std::atomic<bool> is_aborted_{false};
  std::atomic<bool> is_ended_{false};  // nothing more runs: a rank has found a misuse, or the device is lost
  std::atomic<cuda::ncclResult_t> error_{cuda::ncclSuccess};
  std::atomic<std::uint64_t> idle_polls_{0};
  mutable std::mutex text_mutex_;  // guards error_text_ and changes of error_; streams lock it only when they fail
  std::string error_text_;
};

/// Marks, while it lives, the calling thread as inside a call on this communicator. Reports a misuse if another thread
/// is inside a call already.
class CommunicatorCall {
 public:
  CommunicatorCall(Communicator& communicator, const char* call);
  ~CommunicatorCall();
  CommunicatorCall(const CommunicatorCall&) = delete;
  CommunicatorCall& operator=(const CommunicatorCall&) = delete;

 private:
  Communicator& communicator_;
  bool is_first_ = false;
};

}  // namespace farandole::fake
