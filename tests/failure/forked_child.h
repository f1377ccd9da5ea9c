// SPDX-License-Identifier: Apache-2.0
// Shared by the cases of forked_rank: starts child processes and checks their results.
#pragma once

#include <sys/types.h>

#include <functional>
#include <stdexcept>
#include <string>

#include "farandole/collectives/communicator.h"

namespace farandole::test {

constexpr unsigned kDeadlineSeconds = 30;
constexpr int kGood = 0, kBad = 2, kReturned = 3, kExited = 4, kThrew = 5;

/// Thrown in a child, through whatever is on its stack.
struct ThrownByChild : std::runtime_error {
  ThrownByChild() : std::runtime_error("thrown by the child") {}
};

/// @throws std::runtime_error  with `what`: the condition does not hold
void need(bool condition, const std::string& what);

/// A forked child: its standard error goes to the parent, which expects none.
struct Child {
  pid_t pid = 0;
  int standard_error = -1;

  /// 0 in the child, as fork.
  static Child make();
  bool is_here() const { return pid == 0; }
  /// Waits for the child, and checks its exit status and standard error.
  /// @param text  part of the expected standard error; empty: the child must print nothing there
  void expect(int wanted, const std::string& text = {}) const;
};

void check_collectives(Communicator& ranks, int times = 20);
/// Checks that `call` throws the error that this process is no rank.
void expect_refused(const char* name, const std::function<void()>& call);

/// The case of the engine's C interface. Returns the status of its process, in the child also.
int fork_with_engine();

}  // namespace farandole::test
