// SPDX-License-Identifier: Apache-2.0
// The barrier that names late ranks. It takes place in the group's store, so that a late rank leaves no call of the
// communicator behind.
//
// Every other rank sets a key of its own. Rank 0 waits for these keys, and then sets the key `answer` to a text that
// names the ranks which are late, or to "". All ranks raise that text.
#include <c10/util/StringUtil.h>

#include <chrono>
#include <string>
#include <vector>

#include "backend.h"
#include "errors.h"
#include "store_wait.h"

namespace farandole_torch {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
constexpr Milliseconds kAnswerTime{10'000};  // that other ranks wait for rank 0's answer after the timeout

}  // namespace

void FarandoleBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const Milliseconds timeout = options.timeout >= Milliseconds::zero() ? options.timeout : options_->timeout;
  const std::string prefix = c10::str("farandole/monitored_barrier/", monitored_barriers_++, "/");
  const std::string answer = prefix + "answer";
  const auto end = Clock::now() + timeout;
  if (rank_ == 0) {
    const std::string late = name_late_ranks(prefix, end, timeout, wait_all_ranks);
    store_->set(answer, late);
    if (!late.empty()) throw_error(FARANDOLE_TIMEOUT, late);
    return;
  }
  store_->set(c10::str(prefix, rank_), std::string("here"));
  const bool is_answered = wait_for_key(*store_, answer, end + kAnswerTime);
  const std::string problem = is_answered ? store_->get_to_str(answer) : describe(0) + " has not called it";
  if (problem.empty()) return;
  throw_error(FARANDOLE_TIMEOUT,
              c10::str("Rank ", rank_, " successfully reached monitoredBarrier, but received errors ",
                       "while waiting for send/recv from rank 0: ", problem));
}

/// Returns a text that names the ranks which have not announced themselves until `end`, in the words of gloo's.
std::string FarandoleBackend::name_late_ranks(const std::string& prefix, Clock::time_point end, Milliseconds timeout,
                                              bool wait_all_ranks) const {
  if (timeout == Milliseconds::zero()) return "Rank 0 timed out in monitoredBarrier after 0 ms";
  std::string numbers;
  std::string names;
  int count = 0;
  for (int rank = 1; rank < size_; ++rank) {
    if (wait_for_key(*store_, c10::str(prefix, rank), end)) continue;
    numbers += c10::str(count == 0 ? "" : ", ", rank);
    names += (count == 0 ? "" : ", ") + describe(rank);
    ++count;
    if (!wait_all_ranks) break;
  }
  if (count == 0) return {};
  return c10::str(count == 1 ? "Rank " : "Ranks ", numbers, " failed to pass monitoredBarrier in ", timeout.count(),
                  " ms: ", names);
}

}  // namespace farandole_torch
