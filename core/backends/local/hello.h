// SPDX-License-Identifier: Apache-2.0
// First message in each direction on a connection between two processes of a host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace farandole::local {

/// Identifies a process to its peer. Sent as raw bytes. The layout of this struct never changes, so that different
/// builds understand each other's hello and can report the difference.
struct Hello {
  std::int32_t process = 0;
  std::int32_t processes = 0;
  std::int32_t pid = 0;
  char layout[116] = {};  ///< the beginning of layout_id(), which identifies the build

  std::string_view layout_text() const { return layout; }
};
static_assert(sizeof(Hello) == 128);

/// The hello of this process.
Hello make_hello(int process, int processes);
/// Parses a packet. Checks its size, 0 <= process < processes, pid > 0, and that the layout is a text.
/// @throws TransportError  says what is wrong
Hello parse_hello(std::span<const std::byte> packet);

}  // namespace farandole::local
