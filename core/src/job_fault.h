// SPDX-License-Identifier: Apache-2.0
// Why calls of a job fail from now on.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "farandole/core/error.h"

namespace farandole {

/// The first fault of a job, or that its World has ended, or that this process is a forked child of it. Thread-safe.
class JobFault {
 public:
  /// Sequentially consistent with what sets it.
  bool exists() const { return exists_.load(std::memory_order_seq_cst); }
  /// The same for hot paths: an acquire, which pairs with the release of what sets it.
  bool is_seen() const { return exists_.load(std::memory_order_acquire); }
  /// False if there is one already. A call that loses returns when the fault of the winner can be raised.
  /// @param before  runs before any thread sees the fault
  template <class Before>
  bool set(ErrorKind kind, const std::string& text, const Before& before) {
    const std::lock_guard setting(setting_mutex_);
    if (exists_) return false;
    before();
    const std::lock_guard lock(mutex_);
    if (exists_) return false;
    set_locked(kind, text);
    return true;
  }
  /// The World has ended. A fault that the job had before stays what is raised.
  void set_ended(const std::string& text) {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    if (!exists_) set_locked(ErrorKind::kInvalidArgument, text);
  }
  bool has_ended() const {
    const std::lock_guard lock(mutex_);
    return has_ended_;
  }
  /// Nothing else may be asked of it in a forked child, where the mutex may be held for ever.
  void set_forked_child() {
    is_forked_child_ = true;
    exists_.store(true, std::memory_order_seq_cst);
  }
  bool is_forked_child() const { return is_forked_child_; }
  /// Throws it. @param doing  before its text
  [[noreturn]] void raise(const std::string& doing = {}) const {
    const std::lock_guard lock(mutex_);
    throw_error(kind_, doing + text_);
  }

 private:
  void set_locked(ErrorKind kind, const std::string& text) {
    kind_ = kind;
    text_ = text;
    exists_.store(true, std::memory_order_seq_cst);
  }

  std::atomic<bool> exists_{false};
  bool is_forked_child_ = false;  // written at the fork, when the child has one thread
  std::mutex setting_mutex_;      // before mutex_; held while a fault is set, with all that comes before it
  mutable std::mutex mutex_;      // guards what follows; kind and text are written once before exists_ is set
  ErrorKind kind_ = ErrorKind::kInternal;
  std::string text_;
  bool has_ended_ = false;
};

}  // namespace farandole
