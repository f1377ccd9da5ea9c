// SPDX-License-Identifier: Apache-2.0
// A user's program, built against an installed Farandole.
#include <farandole/collectives/communicator.h>
#include <farandole/gradients/gradient_averager.h>
#include <farandole/sdk/backend.h>
#include <farandole/sdk/plugin_build.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <vector>

int main() {
  std::atomic<int> right{0};
  farandole::run_replicas(3, [&](farandole::Communicator& ranks) {
    std::vector<float> data(5, 2.0F);
    ranks.allreduce(data, farandole::ReduceOp::kSum);
    if (data[4] == 6.0F) ++right;
  });
  // Build id of a plug-in built here. The compiler, in the first parts of the id, may differ from the library's.
  const std::string own = FARANDOLE_PLUGIN_BUILD_ID;
  const std::string librarys = farandole::build_id();
  if (own.substr(own.rfind('-')) != librarys.substr(librarys.rfind('-'))) {
    std::printf("the headers are of build %s, the library is %s\n", own.c_str(), librarys.c_str());
    return 1;
  }
  std::printf("%d of 3 ranks are right\n", right.load());
  return right == 3 ? 0 : 1;
}
