// SPDX-License-Identifier: Apache-2.0
// What other processes say of themselves is looked at here before anything is done by it.
#pragma once

#include "farandole/core/topology.h"
#include "farandole/sdk/backend.h"

namespace farandole {

/// @param control  of `parse_control_message`   @throws TransportError  it speaks of ranks or communicators
/// that there are not, or that are not its sender's to speak of
void check_control_message(const ControlMessage& control, const Topology& topology);

/// Looks at what `process` said when all met.
/// @param replicas  its ranks   @throws TransportError  that can not be, and the message says what
void check_claim(int process, const HostProof::Claim& claim, int replicas);

}  // namespace farandole
