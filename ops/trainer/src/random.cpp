// SPDX-License-Identifier: Apache-2.0
// `bits(counter)` is word counter % 4 of Philox's block counter / 4; `below` takes complete blocks from the upper half
// of the block numbers, which `bits` never uses.
#include "farandole/trainer/random.h"

#include <cmath>
#include <cstddef>
#include <numbers>

#include "philox.h"
#include "random_streams.h"

namespace farandole::trainer {
namespace {

constexpr std::uint64_t kUpperHalf = std::uint64_t{1} << 63;

}  // namespace

std::uint32_t CounterRandom::bits(std::uint64_t counter) const {
  return philox(seed_, stream_, counter / 4).words[counter % 4];
}

void CounterRandom::bits(std::uint64_t first, std::span<std::uint32_t> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const std::uint64_t counter = first + done;
    const PhiloxBlock block = philox(seed_, stream_, counter / 4);
    for (std::size_t word = counter % 4; word < 4 && done < out.size(); ++word) out[done++] = block.words[word];
  }
}

double CounterRandom::normal(std::uint64_t counter) const {
  const double radius = (bits(2 * counter) + 0.5) * 0x1p-32;  // never 0
  return std::sqrt(-2 * std::log(radius)) * std::cos(2 * std::numbers::pi * uniform(2 * counter + 1));
}

std::uint64_t CounterRandom::below(std::uint64_t counter, std::uint64_t bound) const {
  const PhiloxBlock block = philox(seed_, stream_, counter | kUpperHalf);
  const std::uint64_t low = block.words[0], high = block.words[1];
  // The upper half of the 128-bit product (high:low) * bound, from 32-bit words.
  const std::uint64_t bound_low = bound & 0xFFFFFFFF, bound_high = bound >> 32;
  const std::uint64_t middle = high * bound_low + (low * bound_low >> 32);
  const std::uint64_t other = low * bound_high + (middle & 0xFFFFFFFF);
  return high * bound_high + (middle >> 32) + (other >> 32);
}

std::uint64_t random_stream(RandomPurpose purpose, std::initializer_list<std::uint64_t> indices) {
  return hashed_stream(static_cast<std::uint64_t>(purpose), indices.begin(), indices.size());
}

}  // namespace farandole::trainer
