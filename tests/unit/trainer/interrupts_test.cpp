// SPDX-License-Identifier: Apache-2.0
#include "interrupts.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

namespace farandole::trainer {
namespace {

struct sigaction action_of(int signal) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  return action;
}

/// Base of the calling thread's stack for signal handlers; nullptr if there is none.
const void* signal_stack() {
  stack_t stack{};
  sigaltstack(nullptr, &stack);
  return (stack.ss_flags & SS_DISABLE) == 0 ? stack.ss_sp : nullptr;
}

TEST(Interrupts, SignalsHaveTheirFormerEffectBeforeAndAfter) {
  {
    Interrupts interrupts;
    EXPECT_EQ(action_of(SIGINT).sa_handler, SIG_DFL);
    interrupts.watch(false);
    interrupts.watch(true);
    EXPECT_NE(action_of(SIGINT).sa_handler, SIG_DFL);
    EXPECT_NE(action_of(SIGTERM).sa_handler, SIG_DFL);
  }
  EXPECT_EQ(action_of(SIGINT).sa_handler, SIG_DFL);
  EXPECT_EQ(action_of(SIGTERM).sa_handler, SIG_DFL);
}

TEST(Interrupts, IgnoredSignalStaysIgnored) {
  std::signal(SIGINT, SIG_IGN);
  {
    Interrupts interrupts;
    interrupts.watch(false);
    EXPECT_EQ(action_of(SIGINT).sa_handler, SIG_IGN);
  }
  EXPECT_EQ(action_of(SIGINT).sa_handler, SIG_IGN);
  std::signal(SIGINT, SIG_DFL);
}

// In a child, because the process remembers the first signal.
TEST(InterruptsDeathTest, FirstSignalIsAnnouncedAndRemembered) {
  EXPECT_EXIT(
      {
        Interrupts interrupts;
        interrupts.watch(true);
        const int before = Interrupts::received();
        (void)raise(SIGTERM);
        (void)raise(SIGINT);  // at once: the same wish, passed on by a launcher
        std::_Exit(before == 0 && Interrupts::received() == SIGTERM ? 7 : 1);
      },
      testing::ExitedWithCode(7), "a second signal ends it at once");
}

// oneDNN's matrix product points the stack pointer into the heap. The address sanitizer gives threads
// a stack, which the test must find again.
TEST(Interrupts, HandlersRunOnAStackOfTheirOwn) {
  const void* const before = signal_stack();
  {
    const SignalStack stack;
    Interrupts interrupts;
    interrupts.watch(false);
    EXPECT_NE(signal_stack(), nullptr);
    EXPECT_NE(signal_stack(), before);
    for (const int signal : {SIGINT, SIGTERM}) EXPECT_NE(action_of(signal).sa_flags & SA_ONSTACK, 0);
  }
  EXPECT_EQ(signal_stack(), before);
}

}  // namespace
}  // namespace farandole::trainer
