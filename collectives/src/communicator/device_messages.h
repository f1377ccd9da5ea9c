// SPDX-License-Identifier: Apache-2.0
// The messages of device memory of one communicator.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "device/device_context.h"
#include "farandole/collectives/communicator.h"
#include "farandole/sdk/device.h"
#include "operation/group.h"

namespace farandole {

/// Sends and receives messages of device memory.
///
/// Each direction between this rank and a peer is a *lane*: a communicator of the two ranks, in the device order of the
/// parent, whose calls are messages (kDeviceMessageMethod). So a message is compared, ordered, watched, captured and
/// reported as a collective of two ranks: in the agreed order it takes its place among all device operations of both
/// ranks; in the caller's order the calling thread enqueues it. Two directions are two lanes, so that ranks which both
/// send first and then receive, in another stream, do not wait for each other. docs/decisions/0068 has the reasons.
///
/// The first message with a peer makes both lanes, and blocks until the peer makes its first message with this rank. In
/// the caller's order it also makes the lanes' device groups and connects them, so that later messages only enqueue.
///
/// Thread-safe. No lock is held while a thread waits for another rank, with one exception: while a thread connects a
/// peer, other threads wait which have messages with the same peer. So functions of Work::on_done run without locks,
/// but not while their thread connects a peer with which they have messages: these messages raise InvalidArgument.
class DeviceMessages {
 public:
  /// Opens the rank's device. @param parent  outlives this object   @throws InvalidArgument  this rank has no device
  explicit DeviceMessages(Communicator::State& parent);
  /// Blocks until all messages have ended, or the job has failed.
  ~DeviceMessages();
  DeviceMessages(const DeviceMessages&) = delete;
  DeviceMessages& operator=(const DeviceMessages&) = delete;

  /// Runs a message: returns when it is complete, or with a stream when it is enqueued.
  /// @throws InvalidArgument, Unsupported  nothing was sent   @throws Error  the message has failed
  void run(const PeerMessage& message, StreamView stream);
  /// Starts a message, which takes the agreed order. @throws  as `run`
  Work start(const PeerMessage& message, StreamView stream);
  /// See Communicator::exchange.
  void exchange(std::span<const PeerMessage> messages, StreamView stream);

 private:
  /// The messages from one rank to another.
  struct Lane {
    explicit Lane(DeviceContext& device) : context(device) {}
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;
    /// Blocks until all messages have ended, or the job has failed.
    ~Lane();
    DeviceContext& context;
    std::mutex mutex;  // held while a message is enqueued or submitted, not while a thread waits; guards what follows
    std::shared_ptr<Communicator::State> state;
    int root = 0;                       // the sender, as rank of the lane
    StreamView stream;                  // of messages of `exchange` in the caller's order
    std::unique_ptr<DeviceEvent> done;  // recorded in `stream` after the messages of an `exchange`
    Buffer first;                       // memory of the message that connects the lane
  };
  struct Peer {
    std::mutex mutex;  // held while the lanes are made
    bool is_connected = false;
    std::unique_ptr<Lane> to, from;
    /// Thread that makes the lanes. Relaxed: a thread reads its own id only if it has written it.
    std::atomic<std::thread::id> connector;
  };
  /// A message of `exchange` and its lane.
  struct Planned {
    const PeerMessage* message;
    Lane* lane;
    std::size_t index;  // in the list of the caller
  };
  enum class Use { kSingle, kExchange };

  void check(std::string_view call, const PeerMessage& message, StreamView stream, Use use);
  void check_capture(std::string_view call, const PeerMessage& message, StreamView stream);
  Peer& peer(int rank);
  std::unique_lock<std::mutex> lock(Peer& peer, int rank) const;
  static std::unique_lock<std::mutex> lock_enqueued(Lane& lane);
  Lane& lane_of(const PeerMessage& message);
  void connect(int rank, Peer& peer);
  std::unique_ptr<Lane> make_lane(int sender, int receiver);
  void bring_up(Lane& lane);
  Work start_on(Lane& lane, const PeerMessage& message, StreamView stream);
  std::vector<Planned> plan(std::span<const PeerMessage> messages);
  void enqueue(std::span<const Planned> planned, StreamView stream);
  static void enqueue_on(Lane& lane, std::span<const Planned> planned, DeviceEvent& begin, StreamView stream);
  void run_queued(std::span<const Planned> planned, StreamView stream);
  void copy_own(std::span<const PeerMessage> messages, StreamView stream);
  void wait_for(DeviceEvent& event) const;
  StreamView default_stream() const { return {nullptr, context_.space()}; }

  Communicator::State& parent_;
  const Group& group_;  // the parent's
  DeviceContext::ContextRef context_ref_;
  DeviceContext& context_;
  std::mutex mutex_;  // guards peers_; not held while a peer's lanes are made
  std::map<int, std::unique_ptr<Peer>> peers_;
};

}  // namespace farandole
