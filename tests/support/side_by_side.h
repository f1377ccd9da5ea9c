// SPDX-License-Identifier: Apache-2.0
// Processes of a test that are threads.
#pragma once

#include <functional>
#include <future>
#include <vector>

namespace farandole::test {

/// What `body` returns for each process, run side by side.
template <class Result>
std::vector<Result> side_by_side(int processes, const std::function<Result(int)>& body) {
  std::vector<std::future<Result>> running;
  for (int p = 0; p < processes; ++p) running.push_back(std::async(std::launch::async, body, p));
  std::vector<Result> results;
  for (auto& each : running) results.push_back(each.get());
  return results;
}

}  // namespace farandole::test
