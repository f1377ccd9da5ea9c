// SPDX-License-Identifier: Apache-2.0
// In the place of pmix_client.cpp where there is no header of PMIx.
#include "farandole/core/error.h"
#include "pmix/pmix_client.h"

namespace farandole::pmix {

std::unique_ptr<PmixClient> PmixClient::join(const Settings&) {
  throw Unsupported(
      "this build of Farandole has no PMIx; install the development files of PMIx (Debian and Ubuntu: libpmix-dev) and "
      "build again, or start the program with the mpirun of an MPI that Farandole has a plug-in for");
}

}  // namespace farandole::pmix
