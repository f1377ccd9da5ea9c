// SPDX-License-Identifier: Apache-2.0
// Replaces pmix_client.cpp in builds without PMIx's header.
#include "farandole/core/error.h"
#include "pmix/pmix_client.h"

namespace farandole::pmix {

std::unique_ptr<PmixClient> PmixClient::join(const Settings&) {
  throw Unsupported(
      "this build of Farandole has no PMIx; install the development files of PMIx (Debian and Ubuntu: libpmix-dev) and "
      "build again, or start the program with the mpirun of an MPI that Farandole has a plug-in for");
}

}  // namespace farandole::pmix
