// SPDX-License-Identifier: Apache-2.0
#include "terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace farandole::tools {

std::optional<int> terminal_of_standard_output() {
  if (isatty(STDOUT_FILENO) != 1) return std::nullopt;
  if (std::getenv("OMPI_COMM_WORLD_RANK") == nullptr) return STDOUT_FILENO;
  std::error_code unreadable;
  const auto shown = std::filesystem::read_symlink(fmt::format("/proc/{}/fd/1", getppid()), unreadable).string();
  if (!shown.starts_with("/dev/pts/") && !shown.starts_with("/dev/tty")) return std::nullopt;
  // If the terminal cannot be opened, its width is unknown.
  const int terminal = open(shown.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  return terminal >= 0 ? terminal : STDOUT_FILENO;
}

std::size_t columns_of(int terminal) {
  winsize size{};
  const bool is_known = ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : 80;
}

}  // namespace farandole::tools
