// SPDX-License-Identifier: Apache-2.0
// Check that replicas are equal.
#pragma once

#include <cstdint>

#include "farandole/collectives/communicator.h"

namespace farandole::trainer {

/// Compares checksums over all replicas. Collective; blocks.
/// @throws InternalError  on all ranks; names the first rank that differs
void check_mirrored(Communicator& communicator, std::uint32_t parameters, std::uint32_t statistics);

}  // namespace farandole::trainer
