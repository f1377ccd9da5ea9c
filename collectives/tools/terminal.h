// SPDX-License-Identifier: Apache-2.0
// The terminal that shows a program's standard output.
#pragma once

#include <cstddef>
#include <optional>

namespace farandole::tools {

/// Descriptor of the terminal that shows standard output, which stays open until the process ends; nothing if standard
/// output is a file or a pipe. Under Open MPI every rank has a pseudo-terminal of its own, wherever the launcher sends
/// the rank's output, so the launcher's standard output decides.
std::optional<int> terminal_of_standard_output();
/// Width of the terminal in characters; 80 if the terminal does not say.
std::size_t columns_of(int terminal);

}  // namespace farandole::tools
