// SPDX-License-Identifier: Apache-2.0
// The fault of a job: why its calls fail.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "farandole/core/error.h"

namespace farandole {

/// Records that calls of a job fail, and why: the first fault, the end of the World, or a fork (this process is a
/// forked child of the job's process). Thread-safe, except that `set_place` and `set_forked_child` run while no other
/// thread uses the job.
class JobFault {
 public:
  /// Sets the description of this process for messages: "rank 3 (host node7, pid 4711)".
  void set_place(std::string place) { place_ = std::move(place); }

  /// True if calls fail. Sequentially consistent with `set`.
  bool exists() const { return exists_.load(std::memory_order_seq_cst); }
  /// @throws Error  the fault, or the end of the World   @throws InvalidArgument  in a forked child
  /// @param doing  put before the text of the fault, such as "while leaving the job: "
  void check(const std::string& doing = {}) const {
    if (is_seen()) raise(doing);
  }
  /// @throws InvalidArgument  the World has ended, or in a forked child; ignores faults
  void check_world() const;
  /// @throws InvalidArgument  in a forked child
  void check_process() const;

  /// Sets the fault unless there is one already. Returns true if this call has set the fault; a later call returns
  /// false, once the first fault can be raised.
  /// @param rank  the rank that found the fault   @param before  runs before any thread sees the fault
  template <class Before>
  bool set(int rank, ErrorKind kind, const std::string& text, const Before& before) {
    const std::lock_guard setting(setting_mutex_);
    if (exists_) return false;
    before();
    const std::lock_guard lock(mutex_);
    if (exists_) return false;
    finder_ = rank;
    set_locked(kind, text);
    return true;
  }
  /// The rank that found the fault; empty without a fault. A rank that fails by itself finds the fault that the other
  /// ranks raise. @pre  not in a forked child
  std::optional<int> finder() const {
    const std::lock_guard lock(mutex_);
    return finder_;
  }
  /// Notes that another process has announced the fault.
  void set_of_peer() { is_of_peer_ = true; }
  bool is_of_peer() const { return is_of_peer_; }
  /// Notes that the World has ended. An earlier fault is still the error that calls raise.
  void set_ended();

  /// Notes that this process is a forked child. Only `check…` and `is_forked_child` may be called afterwards, because
  /// another thread of the parent may have held the mutex at the fork.
  void set_forked_child() {
    is_forked_child_ = true;
    exists_.store(true, std::memory_order_seq_cst);
  }
  bool is_forked_child() const { return is_forked_child_; }

 private:
  /// `exists` for hot paths: an acquire load, which pairs with the store in `set_locked`.
  bool is_seen() const { return exists_.load(std::memory_order_acquire); }
  [[noreturn]] void raise(const std::string& doing) const;
  void set_locked(ErrorKind kind, const std::string& text) {
    kind_ = kind;
    text_ = text;
    exists_.store(true, std::memory_order_seq_cst);
  }

  std::atomic<bool> exists_{false};
  std::atomic<bool> is_of_peer_{false};
  bool is_forked_child_ = false;  // written at the fork, when the child has one thread
  std::string place_;             // const once the job has been joined
  std::mutex setting_mutex_;      // locked before mutex_; held while a fault is set, including `before`
  mutable std::mutex mutex_;      // guards the members below; the fault is written once, before exists_ is set
  std::optional<int> finder_;
  ErrorKind kind_ = ErrorKind::kInternal;
  std::string text_;
  bool has_ended_ = false;
};

}  // namespace farandole
