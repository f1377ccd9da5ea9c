// SPDX-License-Identifier: Apache-2.0
// The first of several exceptions.
#pragma once

#include <exception>

namespace farandole {

/// Runs several actions, all of them, and then throws the first exception. For waits: a pending Work that is destroyed
/// while an exception passes poisons the job.
///
///   FirstError error;
///   for (Work& work : works) error.run([&] { work.wait(); });
///   error.check();
class FirstError {
 public:
  template <class Action>
  void run(const Action& action) {
    try {
      action();
    } catch (...) {
      if (!first_) first_ = std::current_exception();
    }
  }
  /// @throws  the first exception of the actions
  void check() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

}  // namespace farandole
