// SPDX-License-Identifier: Apache-2.0
// Threads that serve the futures of pending calls.
#pragma once

#include <functional>

namespace farandole_torch {

/// Runs `task`, which runs a future's callbacks, on a thread of its own kind, not on the thread that advances calls:
/// callbacks run Python code, and may start a collective and wait for its future (PowerSGD's hook does). A thread is
/// started if all others are busy, so tasks never wait for each other.
void run_on_completion_thread(std::function<void()> task);

/// Runs `wait`, which waits for a call and so advances all calls, on one thread for all. A program that waits for a
/// future does not advance the call, and where every core has a rank, the library's own thread does so every few
/// milliseconds only.
void run_on_waiting_thread(std::function<void()> wait);

}  // namespace farandole_torch
