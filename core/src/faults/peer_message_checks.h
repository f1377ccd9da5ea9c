// SPDX-License-Identifier: Apache-2.0
// Validates messages of other processes before this process acts on them.
#pragma once

#include "farandole/core/topology.h"
#include "farandole/sdk/backend.h"

namespace farandole {

/// Validates the ranks and rounds in a control message. @param control  result of `parse_control_message`
/// @throws TransportError  a rank or round does not exist, or the sender may not speak for the rank
void check_control_message(const ControlMessage& control, const Topology& topology);

/// Validates the claim that `process` has sent while the job is joined. @param replicas  number of ranks that the
/// process claims
/// @throws TransportError  a value is impossible; the message has the value
void check_claim(int process, const HostProof::Claim& claim, int replicas);

}  // namespace farandole
