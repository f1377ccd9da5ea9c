// SPDX-License-Identifier: Apache-2.0
// A program of somebody else's, built against the install tree.
#include <farandole/collectives/communicator.h>
#include <farandole/gradients/gradient_averager.h>

#include <atomic>
#include <cstdio>
#include <vector>

int main() {
  std::atomic<int> right{0};
  farandole::run_replicas(3, [&](farandole::Communicator& ranks) {
    std::vector<float> data(5, 2.0F);
    ranks.allreduce(data, farandole::ReduceOp::kSum);
    if (data[4] == 6.0F) ++right;
  });
  std::printf("%d of 3 ranks are right\n", right.load());
  return right == 3 ? 0 : 1;
}
