// SPDX-License-Identifier: Apache-2.0
#include "local/hello.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "farandole/core/error.h"
#include "farandole/sdk/backend.h"

namespace farandole::local {

Hello make_hello(int process, int processes) {
  Hello hello;
  hello.process = process;
  hello.processes = processes;
  hello.pid = getpid();
  std::string_view(layout_id()).copy(hello.layout, sizeof hello.layout - 1);
  return hello;
}

Hello parse_hello(std::span<const std::byte> packet) {
  Hello hello;
  if (packet.size() != sizeof hello) {
    throw TransportError(
        fmt::format("{} bytes instead of {}; is it of another version of Farandole?", packet.size(), sizeof hello));
  }
  std::memcpy(&hello, packet.data(), sizeof hello);
  if (hello.process < 0 || hello.process >= hello.processes || hello.pid <= 0) {
    throw TransportError(fmt::format("process {} of {} with pid {}", hello.process, hello.processes, hello.pid));
  }
  const std::string_view layout(hello.layout, strnlen(hello.layout, sizeof hello.layout));
  const bool is_text = std::all_of(layout.begin(), layout.end(), [](char byte) { return byte >= ' ' && byte <= '~'; });
  if (layout.size() == sizeof hello.layout || !is_text) throw TransportError("a layout that is no text");
  return hello;
}

}  // namespace farandole::local
