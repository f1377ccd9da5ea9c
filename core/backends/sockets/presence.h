// SPDX-License-Identifier: Apache-2.0
// Finds processes of the same machine if /proc does not show them (hidden, or another process name space).
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>

#include "sockets/descriptor.h"

namespace farandole::sockets {

/// Announces this process, under `nonce`, to the processes of its network name space: binds a Unix socket with that
/// name in Linux's abstract name space, which leaves no files behind. The announcement lasts as long as the descriptor
/// is open. Returns an empty descriptor if the system refuses.
UniqueDescriptor announce_presence(std::span<const unsigned char> nonce);

/// Returns the process id, in this process's numbering, of the process that has announced `nonce`. Returns 0 if that
/// process lives in another process name space, or if its id cannot be determined; empty if no process of this network
/// name space has announced `nonce`.
std::optional<pid_t> find_present(std::span<const unsigned char> nonce);

}  // namespace farandole::sockets
