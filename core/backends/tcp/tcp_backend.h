// SPDX-License-Identifier: Apache-2.0
// Jobs over several hosts that no MPI starts: FARANDOLE_RENDEZVOUS, or MASTER_ADDR and its companions.
#pragma once

#include "farandole/sdk/backend.h"

namespace farandole::tcp {

/// The backend "tcp", part of the library.
Backend& tcp_backend();

}  // namespace farandole::tcp
