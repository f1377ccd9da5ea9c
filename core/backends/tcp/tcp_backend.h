// SPDX-License-Identifier: Apache-2.0
// Backend of jobs over several hosts without MPI: FARANDOLE_RENDEZVOUS, or MASTER_ADDR and its companions.
#pragma once

#include "farandole/sdk/backend.h"

namespace farandole::tcp {

/// Returns the backend "tcp", which is part of the library.
Backend& tcp_backend();

}  // namespace farandole::tcp
