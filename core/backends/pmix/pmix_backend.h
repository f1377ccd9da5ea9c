// SPDX-License-Identifier: Apache-2.0
// Jobs over several hosts that PMIx describes, without MPI: FARANDOLE_MPI=pmix.
#pragma once

#include "farandole/sdk/backend.h"

namespace farandole::pmix {

/// The backend "pmix", part of the library: the processes learn their numbers, the key and where process 0 listens by
/// PMIx, and everything between them goes over TCP.
Backend& pmix_backend();

}  // namespace farandole::pmix
