// SPDX-License-Identifier: Apache-2.0
// Limit of open files, raised for the connections of a process.
#pragma once

#include <string_view>

namespace farandole::sockets {

/// Raises the soft limit of open files if the limit is too low for this number of connections; each connection needs a
/// descriptor.
/// @param connections  maximum number open at a time   @param job  for messages: "job 'train'"
/// @throws InvalidArgument  the hard limit is too low
void provide_descriptors(int connections, std::string_view job);
/// Best effort, for connections that are made on first use and may never be needed: raises the soft limit like
/// `provide_descriptors`, but no further than the hard limit allows. Never throws.
void ask_for_descriptors(int connections);

}  // namespace farandole::sockets
