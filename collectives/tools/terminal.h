// SPDX-License-Identifier: Apache-2.0
// The terminal that shows a program's standard output.
#pragma once

#include <cstddef>
#include <optional>

namespace farandole::tools {

/// Descriptor of the terminal that shows standard output; nothing if standard output is a file or a pipe. The
/// descriptor stays open until the process ends. Under Open MPI every rank writes to a pseudo-terminal of its own, even
/// if the launcher's output goes to a file, so this function looks at the launcher's standard output.
std::optional<int> terminal_of_standard_output();
/// Width of the terminal in characters; 80 if the width is unknown.
std::size_t columns_of(int terminal);

}  // namespace farandole::tools
