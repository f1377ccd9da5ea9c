// SPDX-License-Identifier: Apache-2.0
// Streams of the double: each is a thread with a queue that orders what a GPU would order, and nothing else. A host
// thread that enqueues is before the item (release and acquire of `pushed_`). An item is before those that wait for its
// mark, or for its position in the stream. No lock is shared by hosts and streams, or by two streams, so the thread
// sanitizer sees each missing wait as a data race. Streams pause at random.
#pragma once

#include <array>
#include <atomic>
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

/// Object behind a handle of CUDA. The memory is never freed, so that uses of a destroyed handle are recognised.
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
  };
  explicit Handle(Kind kind) : kind_(kind) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  bool is(Kind kind) const { return kind_.load(std::memory_order_relaxed) == kind; }
  void die() { kind_.store(Kind::kDead, std::memory_order_relaxed); }

 private:
  std::atomic<Kind> kind_;
};
/// Keeps it until the process ends.
void keep(std::shared_ptr<const Handle> handle);
template <class Kept, class... Args>
Kept& make_kept(Args&&... args) {
  auto handle = std::make_shared<Kept>(std::forward<Args>(args)...);
  keep(handle);
  return *handle;
}

/// A moment in a stream, once recorded by one record of an event. The stream reaches it (release); streams that wait
/// for it, and queries that find it reached, acquire that.
class Mark {
 public:
  void reach();
  /// Orders the caller behind the mark only if it is reached.
  bool is_reached() const;
  void wait() const;

 private:
  std::atomic<std::uint32_t> reached_{0};
};

/// Position in a stream: the first `items` items.
struct Position {
  const Stream* stream;
  std::uint32_t items;
};

struct Item {
  const char* call = "";                   ///< the function that enqueued it
  std::function<void(Random&)> work = {};  ///< may be empty
  std::function<void()> skipped = {};      ///< instead of work, where that cannot be done
  const Mark* wait_for = nullptr;
  Mark* reach = nullptr;
  std::vector<Position> after = {};  ///< the rule of the legacy default stream
  Uses uses = {};
};

/// Lives until the process ends.
class Stream : public Handle {
 public:
  Stream(Device& owner, unsigned serial_in_device, bool waits_for_legacy);
  Device& device;
  const unsigned serial;
  const bool is_blocking;  ///< made without CU_STREAM_NON_BLOCKING

  /// The capture that this stream is part of; null if it is in none.
  Capture* capture() const { return capture_.load(std::memory_order_acquire); }
  void set_capture(Capture* capture) { capture_.store(capture, std::memory_order_release); }

  /// Appends an item. Hosts only; thread-safe.
  void push(Item item);
  std::uint32_t pushed() const { return pushed_.load(std::memory_order_relaxed); }
  /// True if all that was pushed is complete.
  bool is_idle() const;
  /// Waits until that many items are complete.
  void wait(std::uint32_t items) const;
  /// While a thread enqueues a group of NCCL's, another one that enqueues here commits a misuse.
  void begin_group();
  void end_group() { group_thread_.store(0, std::memory_order_relaxed); }
  /// The stream hangs before the `nth` item that is enqueued from now, until fake_device_restore.
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

  std::mutex push_mutex_;  // guards last_; streams never take it
  Block* last_;
  std::atomic<std::uint32_t> pushed_{0};        // release: push; acquire: run
  std::atomic<std::uint32_t> completed_{0};     // release: run; acquire: wait
  std::atomic<std::uint32_t> stuck_item_{0};    // 1 is the first item; 0: none
  std::atomic<std::uint32_t> stuck_epoch_{0};   // the item hangs while the number of restorations is this one
  std::atomic<std::uint32_t> group_thread_{0};  // number of the thread; 0: none
  std::atomic<Capture*> capture_{nullptr};      // hosts only; release: set_capture; acquire: capture
  Block* first_;                                // of the stream's thread, as what follows
  Random random_;
};

/// The moment in a capture for which an event stands that was recorded there.
struct CapturedRecord {
  Capture* capture;
  std::vector<std::size_t> nodes;  ///< the last nodes before it
};

/// Lives until the process ends, also when it is destroyed.
class Event : public Handle {
 public:
  explicit Event(Device& owner) : Handle(Kind::kEvent), device(owner) {}
  Device& device;
  /// Records it. @param enqueue  enqueues the item that reaches the mark
  void record(const std::function<void(Mark*)>& enqueue);
  /// Records it in a stream that is being captured.
  void record(CapturedRecord record);
  /// The mark of the last record outside of captures; null if there is none.
  const Mark* mark() const { return last_.load(std::memory_order_acquire); }
  /// The last record, if that was in a capture; else null.
  const CapturedRecord* captured() const { return captured_.load(std::memory_order_acquire); }

 private:
  std::mutex mutex_;        // guards marks_ and records_
  std::deque<Mark> marks_;  // each is reached once; waits that were enqueued before a record keep the older one
  std::deque<CapturedRecord> records_;
  std::atomic<Mark*> last_{nullptr};
  std::atomic<const CapturedRecord*> captured_{nullptr};
};

/// A small number of the calling thread, from 1.
std::uint32_t this_thread_number();

}  // namespace farandole::fake
