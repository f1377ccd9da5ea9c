// SPDX-License-Identifier: Apache-2.0
// What makes a call invalid whatever the other ranks do.
#pragma once

#include "operation/call.h"

namespace farandole {

/// @param rank  the caller's, of `size`   @throws InvalidArgument  the call can not work
void validate(const Call& call, int rank, int size);

}  // namespace farandole
