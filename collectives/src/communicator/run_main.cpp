// SPDX-License-Identifier: Apache-2.0
#include "farandole/collectives/run_main.h"

#include <atomic>

#include "farandole/internal/error_report.h"

namespace farandole {

int run_main(const std::string& program, const std::function<int(Communicator&)>& body, const WorldOptions& options) {
  ErrorReport errors(program);
  return errors.exit_status([&] {
    World world(options);
    std::atomic<int> status{kExitDone};
    run_replicas(world, [&](Communicator& ranks) {
      int of_rank = kExitDone;
      const int of_error = errors.print_errors_of(ranks, [&] { of_rank = body(ranks); });
      if (of_error != kExitDone) of_rank = of_error;
      if (of_rank != kExitDone) status = of_rank;
    });
    return status.load();
  });
}

}  // namespace farandole
