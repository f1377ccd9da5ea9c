// SPDX-License-Identifier: Apache-2.0
// Options of the double, set by the environment or by a test with fake_device_set.
#pragma once

#include <cstdint>

namespace farandole::fake {

/// An option; fake_options.cpp has the names, defaults and meanings.
enum class Option : std::uint8_t {
  kSeed,
  kVerbose,
  kFatal,
  kDelayMicroseconds,
  kStallSeconds,
  kCount,
  kMemory,
  kCapability,
  kDriverVersion,
  kFreeSyncs,
  kDriverLock,
  kLost,
  kStuck,
  kNcclVersion,
  kBufferedPercent,
  kSharedDevice,
  kAbortHangs,
  kMismatchHangs,
  kNoticesDeath,
  kCudnnVersion,
  kCudnnCudaVersion,
  kCudnnWorkspace,
};
std::int64_t option(Option option);
/// Sets an option. Returns false if there is no option of this name, or if the value is not a number.
bool set_option(const char* name, const char* value);

/// Generator of random numbers (splitmix64): the same seed gives the same numbers. Not thread-safe.
class Random {
 public:
  explicit Random(std::uint64_t state) : state_(state) {}
  std::uint64_t next();
  /// Returns a number from 0 to `end` - 1; 0 if `end` is 0.
  std::uint64_t below(std::uint64_t end) { return end == 0 ? 0 : next() % end; }
  bool one_in(std::uint64_t chances) { return below(chances) == 0; }

 private:
  std::uint64_t state_;
};

/// Makes the generator of the `serial`-th stream of a device, from the seed of this process.
Random random_of(int device, unsigned serial);

}  // namespace farandole::fake
