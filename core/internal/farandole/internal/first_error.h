// SPDX-License-Identifier: Apache-2.0
// The first of several exceptions.
#pragma once

#include <exception>
#include <utility>

namespace farandole {

/// Runs several actions, all of them, and then throws the first exception. For waits: a pending Work that is destroyed
/// while an exception passes poisons the job.
///
///   FirstError error;
///   for (Work& work : works) error.run([&] { work.wait(); });
///   error.check();
class FirstError {
 public:
  FirstError() = default;
  /// @param first  an error that came before the actions, or null
  explicit FirstError(std::exception_ptr first) : first_(std::move(first)) {}
  template <class Action>
  void run(const Action& action) {
    try {
      action();
    } catch (...) {
      if (!first_) first_ = std::current_exception();
    }
  }
  /// Null if there was no exception.
  const std::exception_ptr& get() const { return first_; }
  /// @throws  the first exception of the actions
  void check() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

}  // namespace farandole
