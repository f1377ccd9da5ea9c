// SPDX-License-Identifier: Apache-2.0
// Groups of ranks for tests: threads of this process, or the processes of the job that this program belongs to.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"

namespace farandole::test {

/// Joins the job if a launcher started the program (`is_launched`).
class WorldEnvironment final : public testing::Environment {
 public:
  explicit WorldEnvironment(int replicas) : replicas_(replicas) {}
  void SetUp() override;
  void TearDown() override;

 private:
  int replicas_;
};

/// True if a launcher started this program, even as the only process of the job.
bool is_launched();

/// Runs `body` on a fresh communicator: in a launched job once, on all ranks of the job; otherwise once per size, on
/// ranks that are threads.
void for_each_group(const std::vector<int>& sizes, const std::function<void(Communicator&)>& body);
/// Names of all algorithms and methods that a caller may choose for `collective` among these ranks.
std::vector<std::string> algorithm_names(Collective collective, const Communicator& ranks);
/// Numbers of ranks in the conformance suite.
const std::vector<int>& conformance_sizes();

}  // namespace farandole::test
