// SPDX-License-Identifier: Apache-2.0
// Numbers of random streams, for hosts and devices; see random_stream.
#pragma once

#include <cstdint>

#include "farandole/internal/host_device.h"

namespace farandole::trainer {

/// The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
FARANDOLE_HOST_DEVICE inline std::uint64_t mixed_bits(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

/// As random_stream. @param purpose  a RandomPurpose
FARANDOLE_HOST_DEVICE inline std::uint64_t hashed_stream(std::uint64_t purpose, const std::uint64_t* indices,
                                                         std::uint64_t count) {
  constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15;
  std::uint64_t hash = mixed_bits(purpose * kStep);
  for (std::uint64_t i = 0; i < count; ++i) hash = mixed_bits((hash ^ indices[i]) + kStep);
  return hash;
}

}  // namespace farandole::trainer
