// SPDX-License-Identifier: Apache-2.0
// Streams of the double. Each stream is a thread with a queue, and orders exactly what a GPU would order. A host
// thread's actions before an enqueue come before the item (release and acquire of `pushed_`). An item comes before
// items that wait for its mark, or for its position in the stream. Hosts and streams share no lock, nor do two streams,
// so the thread sanitizer reports each missing wait as a data race. Streams pause at random.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "fake_memory.h"
#include "fake_options.h"

namespace farandole::fake {

class Capture;
class Device;
class Stream;

/// Object behind a handle of CUDA or NCCL. The memory is never freed, so that uses of a destroyed handle are
/// recognised.
class Handle {
 public:
  enum class Kind : std::uint32_t {
    kDead = 0x66616b30,
    kStream,
    kEvent,
    kModule,
    kFunction,
    kCommunicator,
    kCapture,
    kGraphNodes,
    kGraph,
    kExecutableGraph,
    kCublas,
    kCudnn,
    kCudnnTensor,
    kCudnnFilters,
    kCudnnConvolution,
    kCudnnBackend,
  };
  explicit Handle(Kind kind) : kind_(kind) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  bool is(Kind kind) const { return kind_.load(std::memory_order_relaxed) == kind; }
  void die() { kind_.store(Kind::kDead, std::memory_order_relaxed); }

 private:
  std::atomic<Kind> kind_;
};
/// Keeps the object until the process ends.
void keep(std::shared_ptr<const Handle> handle);
template <class Kept, class... Args>
Kept& make_kept(Args&&... args) {
  auto handle = std::make_shared<Kept>(std::forward<Args>(args)...);
  keep(handle);
  return *handle;
}

/// One record of an event in a stream. The stream reaches the mark (release); streams that wait for the mark, and
/// queries that find it reached, acquire.
class Mark {
 public:
  void reach();
  /// Returns true if the stream has reached the mark; only then orders the caller after the mark.
  bool is_reached() const;
  void wait() const;
  /// Time at which the stream has reached the mark. @pre  `is_reached` has returned true
  std::chrono::steady_clock::time_point time() const { return time_; }

 private:
  std::atomic<std::uint32_t> reached_{0};
  std::chrono::steady_clock::time_point time_;
};

/// Position in a stream: the first `items` items.
struct Position {
  const Stream* stream;
  std::uint32_t items;
};

/// An entry of a stream's queue.
struct Item {
  const char* call = "";                   ///< name of the function that enqueued the item
  std::function<void(Random&)> work = {};  ///< may be empty
  std::function<void()> skipped = {};      ///< called instead of `work` if the work cannot be done
  const Mark* wait_for = nullptr;
  Mark* reach = nullptr;
  std::vector<Position> after = {};  ///< positions for which the legacy default stream's rule makes the item wait
  Uses uses = {};
};

/// A stream and its thread. Lives until the process ends.
class Stream : public Handle {
 public:
  Stream(Device& owner, unsigned serial_in_device, bool waits_for_legacy);
  Device& device;
  const unsigned serial;
  const bool is_blocking;  ///< made without CU_STREAM_NON_BLOCKING

  /// The capture to which this stream belongs; null if there is none.
  Capture* capture() const { return capture_.load(std::memory_order_acquire); }
  void set_capture(Capture* capture) { capture_.store(capture, std::memory_order_release); }

  /// Appends an item. Hosts only; thread-safe.
  void push(Item item);
  std::uint32_t pushed() const { return pushed_.load(std::memory_order_relaxed); }
  /// True if all items are complete.
  bool is_idle() const;
  /// Blocks until the first `items` items are complete.
  void wait(std::uint32_t items) const;
  /// Call before the calling thread enqueues an NCCL group. Until `end_group`, an enqueue by another thread is a
  /// misuse.
  void begin_group();
  void end_group() { group_thread_.store(0, std::memory_order_relaxed); }
  /// Makes the stream hang before the `nth` item that is enqueued from now, until fake_device_restore.
  void stick(std::uint32_t nth);

 private:
  static constexpr std::uint32_t kBlockItems = 64;
  struct Block {
    std::array<Item, kBlockItems> items;
    Block* next = nullptr;
  };
  void run();
  void run_item(Item& item, std::uint32_t number);
  void pause_at_random();
  void hang_if_stuck(std::uint32_t number) const;

  std::mutex push_mutex_;  // guards last_; threads of streams never lock it
  Block* last_;
  std::atomic<std::uint32_t> pushed_{0};        // release: push; acquire: run
  std::atomic<std::uint32_t> completed_{0};     // release: run; acquire: wait
  std::atomic<std::uint32_t> stuck_item_{0};    // number of the item that hangs, from 1; 0: none
  std::atomic<std::uint32_t> stuck_epoch_{0};   // the item hangs while `restorations` has this value
  std::atomic<std::uint32_t> group_thread_{0};  // number of the thread that enqueues a group; 0: none
  std::atomic<Capture*> capture_{nullptr};      // hosts only; release: set_capture; acquire: capture
  // Used by the stream's thread only.
  Block* first_;
  Random random_;
};

/// A record of an event in a captured stream.
struct CapturedRecord {
  Capture* capture;
  std::vector<std::size_t> nodes;  ///< the last nodes before the record
};

/// Object behind a CUevent. Lives until the process ends, even if the program destroys the event.
class Event : public Handle {
 public:
  Event(Device& owner, bool with_time) : Handle(Kind::kEvent), device(owner), has_time(with_time) {}
  Device& device;
  const bool has_time;  ///< made without CU_EVENT_DISABLE_TIMING
  /// Records the event. @param enqueue  enqueues the item that reaches the mark
  void record(const std::function<void(Mark*)>& enqueue);
  /// Records the event in a stream that is being captured.
  void record(CapturedRecord record);
  /// The mark of the last record outside of captures; null if there is none.
  const Mark* mark() const { return last_.load(std::memory_order_acquire); }
  /// The last record if that was in a capture; otherwise null.
  const CapturedRecord* captured() const { return captured_.load(std::memory_order_acquire); }

 private:
  std::mutex mutex_;        // guards marks_ and records_
  std::deque<Mark> marks_;  // one per record; waits that were enqueued before a record keep the older mark
  std::deque<CapturedRecord> records_;
  std::atomic<Mark*> last_{nullptr};
  std::atomic<const CapturedRecord*> captured_{nullptr};
};

/// Returns a small number that identifies the calling thread, from 1.
std::uint32_t this_thread_number();

}  // namespace farandole::fake
