// SPDX-License-Identifier: Apache-2.0
#include "tcp/job_key.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cerrno>
#include <system_error>

#include "farandole/core/error.h"

namespace farandole::tcp {

std::array<unsigned char, 32> random_256_bits() {
  std::array<unsigned char, 32> bits{};
  // The kernel gives so few bytes whole, or waits until it has them.
  while (getrandom(bits.data(), bits.size(), 0) != static_cast<ssize_t>(bits.size())) {
    if (errno == EINTR) continue;
    throw TransportError(
        fmt::format("the kernel gives no random numbers, without which no process can prove that it is of "
                    "the job: {}",
                    std::generic_category().message(errno)));
  }
  return bits;
}

}  // namespace farandole::tcp
