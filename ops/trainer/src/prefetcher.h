// SPDX-License-Identifier: Apache-2.0
// Threads that produce results ahead of the thread that uses them.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/internal/library_thread.h"

namespace farandole::trainer {

/// Produces results 0, 1, 2, … on threads, and hands them out in this order. At most `capacity` results are finished or
/// in work beside the result that the consumer holds; their memory is used again.
///
///     Prefetcher<Image> images([&](std::int64_t index, Image& image) { decode(files[index], image); }, 2, 4);
///     images.set_range(0, files.size());
///     for (…) show(images.next());
///
/// Threads start in the first `next`, block signals, and end in `stop` or the destructor. Between `stop` and the next
/// `next` the finished results are kept. An object is used by a single thread, the consumer; `produce` runs on several
/// threads together. In a child that the consumer has forked, `next` throws, and the destructor leaves the threads,
/// which the child does not have, alone.
template <class Result>
class Prefetcher {
 public:
  using Produce = std::function<void(std::int64_t index, Result& result)>;

  /// @param produce  writes result `index`; its exception leaves `next` for this index
  /// @param threads, capacity  at least 1; capacity is raised to the number of threads
  Prefetcher(Produce produce, int threads, std::int64_t capacity)
      : threads_wanted_(threads), shared_(std::make_shared<Shared>()) {
    shared_->produce = std::move(produce);
    shared_->slots.resize(static_cast<std::size_t>(std::max<std::int64_t>(capacity, threads)) + 1);
  }
  ~Prefetcher() { stop(); }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// Index that the next call of `next` returns.
  std::int64_t position() const { return next_; }

  /// Sets the index of the next result, and the index at which production ends. Results that were produced already stay
  /// if `first` is `position()`; otherwise they are dropped, after the results in work are finished.
  void set_range(std::int64_t first, std::int64_t end) {
    if (first != next_) stop();
    const std::lock_guard lock(shared_->mutex);
    shared_->end = end;
    if (first != next_) {
      next_ = shared_->claimed = shared_->released = first;
      for (Slot& slot : shared_->slots) slot.is_finished = false;
    }
    shared_->vacant.notify_all();
  }

  /// Returns the result of `position()`, which is valid until the next call of this object. Waits for it.
  /// @throws  what `produce` threw for this index; `position()` stays   @throws InvalidArgument  in a forked child
  Result& next() {
    check_process();
    Shared& shared = *shared_;
    std::unique_lock lock(shared.mutex);
    if (next_ >= shared.end) throw InternalError("a result behind the end of the prefetcher's range");
    shared.released = next_;
    shared.vacant.notify_all();
    if (threads_.empty()) {
      lock.unlock();
      start_threads();
      lock.lock();
    }
    Slot& slot = shared.slot(next_);
    shared.finished.wait(lock, [&] { return slot.is_finished; });
    if (slot.error) std::rethrow_exception(slot.error);
    slot.is_finished = false;
    ++next_;
    return slot.result;
  }

  /// Joins the threads, which finish the results in work first. Finished results before the first error are kept.
  void stop() {
    if (threads_.empty()) return;
    if (owner_ != getpid()) {
      for (std::jthread& thread : threads_) thread.detach();
      threads_.clear();
      return;
    }
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->is_stopping = true;
      shared_->vacant.notify_all();
    }
    threads_.clear();  // joins
    shared_->is_stopping = false;
    drop_errors();
  }

 private:
  struct Slot {
    Result result;
    std::exception_ptr error;
    bool is_finished = false;
  };
  /// State of consumer and threads. The mutex guards everything but `produce`, and the result and error of a slot while
  /// the slot is in work (owned by its thread) or held (owned by the consumer).
  struct Shared {
    std::mutex mutex;
    std::condition_variable finished, vacant;
    Produce produce;  // const after construction
    std::vector<Slot> slots;
    std::int64_t claimed = 0;   // index of the first result that no thread has begun
    std::int64_t released = 0;  // index of the first result that the consumer may still use
    std::int64_t end = 0;
    bool is_stopping = false;

    Slot& slot(std::int64_t index) { return slots[static_cast<std::size_t>(index) % slots.size()]; }
    bool can_claim() const { return claimed < end && claimed < released + static_cast<std::int64_t>(slots.size()); }
  };

  static void run(const std::shared_ptr<Shared>& shared) {
    std::unique_lock lock(shared->mutex);
    for (;;) {
      shared->vacant.wait(lock, [&] { return shared->is_stopping || shared->can_claim(); });
      if (shared->is_stopping) return;
      const std::int64_t index = shared->claimed++;
      Slot& slot = shared->slot(index);
      lock.unlock();
      slot.error = nullptr;
      try {
        shared->produce(index, slot.result);
      } catch (...) {
        slot.error = std::current_exception();
      }
      lock.lock();
      slot.is_finished = true;
      shared->finished.notify_one();
    }
  }

  /// @throws InvalidArgument  the system refuses a thread; no thread is left then
  void start_threads() {
    owner_ = getpid();
    try {
      while (threads_.size() < static_cast<std::size_t>(threads_wanted_)) {
        threads_.push_back(start_library_thread([shared = shared_] { run(shared); }));
      }
    } catch (const std::system_error& error) {
      const std::size_t started = threads_.size();
      stop();
      throw InvalidArgument(
          fmt::format("{} of {} threads that read samples were started, and no more: {}; take fewer (--loader-threads, "
                      "DataOptions::threads), or raise the limit of processes (ulimit -u, pids.max)",
                      started, threads_wanted_, error.code().message()));
    }
  }

  void check_process() const {
    if (threads_.empty() || owner_ == getpid()) return;
    throw InvalidArgument(
        "this process was forked from a process that trains, and has none of its threads; start a training of its own "
        "in this process");
  }

  /// Without threads: drops the first error and all later results, so that they are produced again.
  void drop_errors() {
    Shared& shared = *shared_;
    for (std::int64_t index = next_; index < shared.claimed; ++index) {
      if (!shared.slot(index).error) continue;
      for (std::int64_t later = index; later < shared.claimed; ++later) shared.slot(later).is_finished = false;
      shared.claimed = index;
    }
  }

  const int threads_wanted_;
  const std::shared_ptr<Shared> shared_;
  std::int64_t next_ = 0;
  pid_t owner_ = 0;  // process that started the threads
  std::vector<std::jthread> threads_;
};

}  // namespace farandole::trainer
