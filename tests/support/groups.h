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

/// Joins the job when the program was started as one of several processes.
class WorldEnvironment final : public testing::Environment {
 public:
  explicit WorldEnvironment(int replicas) : replicas_(replicas) {}
  void SetUp() override;
  void TearDown() override;

 private:
  int replicas_;
};

/// True in a job of processes, also of one.
bool is_launched();

/// Runs `body` on a fresh communicator: of all ranks of such a job, else of threads, once per size.
void for_each_group(const std::vector<int>& sizes, const std::function<void(Communicator&)>& body);
/// Every way to run `collective` among these ranks, for the caller's choice of an algorithm.
std::vector<std::string> algorithm_names(Collective collective, const Communicator& ranks);
/// The sizes of the conformance suite.
const std::vector<int>& conformance_sizes();

}  // namespace farandole::test
