// SPDX-License-Identifier: Apache-2.0
// Which processes live on this machine, where /proc does not tell.
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>

#include "sockets/descriptor.h"

namespace farandole::sockets {

/// Makes this process known to the processes of its network name space, as the one with this nonce: by a socket of that
/// name in Linux's abstract name space, which has no files. It lasts as long as the descriptor. None where the system
/// refuses it.
UniqueDescriptor announce_presence(std::span<const unsigned char> nonce);

/// The number, as this process sees it, of the process that has announced the nonce; 0 if it lives in another process
/// name space, or that is not known. Nothing where there is no such process in this network name space.
std::optional<pid_t> find_present(std::span<const unsigned char> nonce);

}  // namespace farandole::sockets
