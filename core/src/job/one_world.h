// SPDX-License-Identifier: Apache-2.0
// Ensures that a process has one World at a time.
#pragma once

#include <string>
#include <string_view>

namespace farandole {

/// Membership slot of this process, held by each World that is not `alone`. A forked child does not inherit the
/// parent's slot. Thread-safe.
class OneWorld {
 public:
  /// @throws InvalidArgument  the process already has a World, which the message describes
  explicit OneWorld(bool is_alone);
  ~OneWorld();
  OneWorld(const OneWorld&) = delete;
  OneWorld& operator=(const OneWorld&) = delete;

  /// Sets the description of this process for messages, once it is known: "rank 3 (host node7, pid 4711)".
  void set_place(std::string place);
  /// True if log lines carry the name of this World: the World holds the slot, or no other World does.
  bool names_the_log() const;

 private:
  const bool is_alone_;
};

/// Message of every error in a process that was forked from a rank. @param place  description of that rank
std::string describe_forked_child(std::string_view place);

}  // namespace farandole
