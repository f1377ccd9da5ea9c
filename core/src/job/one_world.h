// SPDX-License-Identifier: Apache-2.0
// The World of this process, of which there is one at a time.
#pragma once

#include <string>
#include <string_view>

namespace farandole {

/// Held by each World that joins what it finds; one that is `alone` takes no part. In a forked child the parent's does
/// not count. Thread-safe.
class OneWorld {
 public:
  /// @throws InvalidArgument  there is one, which the error names
  explicit OneWorld(bool is_alone);
  ~OneWorld();
  OneWorld(const OneWorld&) = delete;
  OneWorld& operator=(const OneWorld&) = delete;

  /// Where this process is, once it is known: "rank 3 (host node7, pid 4711)".
  void set_place(std::string place);
  /// True if log lines should say that they come from this World: no other one has the better right to them.
  bool names_the_log() const;

 private:
  const bool is_alone_;
};

/// What every call says in a process that was forked from a rank. @param place  of that rank
std::string describe_forked_child(std::string_view place);

}  // namespace farandole
