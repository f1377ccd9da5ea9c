// What the two ends of a connection tell each other first.
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
  char build[116] = {};  ///< the beginning of build_id()

  std::string_view build_text() const { return build; }
};
static_assert(sizeof(Hello) == 128);

/// This process's.
Hello make_hello(int process, int processes);
/// The hello that a packet is: its process is one of its processes, and the build is a text.
/// @throws TransportError  it is none; says what is wrong
Hello parse_hello(std::span<const std::byte> packet);

}  // namespace farandole::local
