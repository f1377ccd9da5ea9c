// SPDX-License-Identifier: Apache-2.0
// Sets floating-point modes that a program may use in its threads.
#pragma once

#include <cfenv>
#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace farandole::test {

enum class Mode { kUsual, kFlushing, kTowardZero, kUpward, kFlushingUpward };
inline constexpr Mode kForeignModes[] = {Mode::kFlushing, Mode::kTowardZero, Mode::kUpward, Mode::kFlushingUpward};

/// Returns the floating-point mode bits of this thread, without the exception flags.
inline std::uint64_t mode_bits() {
#if defined(__x86_64__)
  return _mm_getcsr() & ~0x3fU;
#elif defined(__aarch64__)
  std::uint64_t bits = 0;
  asm volatile("mrs %0, fpcr" : "=r"(bits));
  return bits;
#else
  return static_cast<std::uint64_t>(std::fegetround());
#endif
}

/// Sets the floating-point mode of this thread while the object lives. kFlushing flushes subnormal results, and
/// subnormal inputs on processors that can.
class ForeignMode {
 public:
  explicit ForeignMode(Mode mode) {
    std::fegetenv(&before_);
    if (mode == Mode::kTowardZero) std::fesetround(FE_TOWARDZERO);
    if (mode == Mode::kUpward || mode == Mode::kFlushingUpward) std::fesetround(FE_UPWARD);
    if (mode == Mode::kFlushing || mode == Mode::kFlushingUpward) flush();
  }
  ForeignMode(const ForeignMode&) = delete;
  ForeignMode& operator=(const ForeignMode&) = delete;
  ~ForeignMode() { std::fesetenv(&before_); }

 private:
  static void flush() {
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040U);
#elif defined(__aarch64__)
    asm volatile("msr fpcr, %0" : : "r"(mode_bits() | (1U << 24)));
#endif
  }
  std::fenv_t before_{};
};

}  // namespace farandole::test
