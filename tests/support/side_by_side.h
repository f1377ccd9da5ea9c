// SPDX-License-Identifier: Apache-2.0
// Runs the processes of a simulated job as threads of the test.
#pragma once

#include <functional>
#include <future>
#include <vector>

namespace farandole::test {

/// Runs `body` for each process in its own thread, all at the same time; returns the results by process.
template <class Result>
std::vector<Result> side_by_side(int processes, const std::function<Result(int)>& body) {
  std::vector<std::future<Result>> running;
  for (int p = 0; p < processes; ++p) running.push_back(std::async(std::launch::async, body, p));
  std::vector<Result> results;
  for (auto& each : running) results.push_back(each.get());
  return results;
}

}  // namespace farandole::test
