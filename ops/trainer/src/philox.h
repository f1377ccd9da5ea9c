// SPDX-License-Identifier: Apache-2.0
// Philox 4x32-10, for hosts and devices. A block of four words belongs to (seed, stream, block number).
// Source: Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. SC 2011.
#pragma once

#include <cstdint>

#include "farandole/internal/host_device.h"

namespace farandole::trainer {

struct PhiloxBlock {
  std::uint32_t words[4];
};

FARANDOLE_HOST_DEVICE inline PhiloxBlock philox(std::uint64_t seed, std::uint64_t stream, std::uint64_t number) {
  auto key_low = static_cast<std::uint32_t>(seed);
  auto key_high = static_cast<std::uint32_t>(seed >> 32);
  PhiloxBlock block{{static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32),
                     static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)}};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53} * block.words[0];
    const std::uint64_t second = std::uint64_t{0xCD9E8D57} * block.words[2];
    block = {{static_cast<std::uint32_t>(second >> 32) ^ block.words[1] ^ key_low, static_cast<std::uint32_t>(second),
              static_cast<std::uint32_t>(first >> 32) ^ block.words[3] ^ key_high, static_cast<std::uint32_t>(first)}};
    key_low += 0x9E3779B9;
    key_high += 0xBB67AE85;
  }
  return block;
}

}  // namespace farandole::trainer
