// SPDX-License-Identifier: Apache-2.0
#include "local/hello.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>

#include "farandole/core/error.h"
#include "farandole/internal/fixed_text.h"
#include "farandole/sdk/backend.h"

namespace farandole::local {

Hello make_hello(int process, int processes) {
  Hello hello;
  hello.process = process;
  hello.processes = processes;
  hello.pid = getpid();
  write_text(hello.layout, layout_id());
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
  if (!is_text(hello.layout)) throw TransportError("a layout that is no text");
  return hello;
}

}  // namespace farandole::local
