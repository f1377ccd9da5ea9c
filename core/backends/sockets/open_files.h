// SPDX-License-Identifier: Apache-2.0
// Descriptors for the connections of a process.
#pragma once

#include <string_view>

namespace farandole::sockets {

/// Each connection needs a descriptor: raises the soft limit of open files where that is too low.
/// @param connections  most that this process may have at a time   @param job  for messages: "job 'train'"
/// @throws InvalidArgument  the hard limit is lower
void provide_descriptors(int connections, std::string_view job);
/// The same for connections that are made when they are first used, and so maybe never: as far as the hard limit goes.
void ask_for_descriptors(int connections);

}  // namespace farandole::sockets
