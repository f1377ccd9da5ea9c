// SPDX-License-Identifier: Apache-2.0
// What the two ends of a connection tell each other first. Builds that differ must understand it: it never changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace farandole::local {

struct Hello {
  std::int32_t process = 0;
  std::int32_t processes = 0;
  std::int32_t pid = 0;
  char layout[116] = {};  ///< the beginning of layout_id()

  std::string_view layout_text() const { return layout; }
};
static_assert(sizeof(Hello) == 128);

/// This process's.
Hello make_hello(int process, int processes);
/// The hello that a packet is: its process is one of its processes, and the build is a text.
/// @throws TransportError  it is none; says what is wrong
Hello parse_hello(std::span<const std::byte> packet);

}  // namespace farandole::local
