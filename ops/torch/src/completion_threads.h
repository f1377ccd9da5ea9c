// SPDX-License-Identifier: Apache-2.0
// Threads that run the callbacks of finished calls.
#pragma once

#include <functional>

namespace farandole_torch {

/// Runs `task` on a thread of its own kind, not on the thread that advances calls: callbacks of a future run Python
/// code, and may start a collective and wait for its future (PowerSGD's hook does). A thread is started if all others
/// are busy, so tasks never wait for each other.
void run_on_completion_thread(std::function<void()> task);

}  // namespace farandole_torch
