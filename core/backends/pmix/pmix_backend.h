// SPDX-License-Identifier: Apache-2.0
// Jobs that a PMIx launcher has started, without MPI: FARANDOLE_MPI=pmix.
#pragma once

#include "farandole/sdk/backend.h"

namespace farandole::pmix {

/// Returns the backend "pmix", which is part of the library. Through PMIx the processes get their numbers, the job's
/// key, and the address at which process 0 listens; all messages between them go over TCP.
Backend& pmix_backend();

}  // namespace farandole::pmix
