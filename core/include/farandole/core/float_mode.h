// SPDX-License-Identifier: Apache-2.0
// The floating-point mode in which everything is reduced and scaled.
#pragma once

#include <cstdint>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// While it lives this thread computes in the mode in which programs start: to nearest, subnormals are kept, nothing
/// traps. Then it is in the caller's mode again, with the caller's flags.
///
/// Whichever thread moves a collective on reduces, and programs set other modes in some of theirs (TensorFlow's pools
/// flush subnormals): without this the ranks would get different bits. What is computed must come from memory and go to
/// memory between the two ends, because compilers know nothing of modes.
/// Cost: the register is read, a few cycles, and written only if the caller's mode is another one.
class FloatMode {
 public:
  FloatMode() : callers_(read()) {
    if (is_foreign()) [[unlikely]] {
      write(kUsual);
    }
  }
  ~FloatMode() {
    if (is_foreign()) [[unlikely]] {
      write(callers_);
    }
  }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
#if defined(__x86_64__)
  using Register = std::uint32_t;  // MXCSR
  static constexpr Register kUsual = 0x1f80;
  static constexpr Register kFlags = 0x3f;  // of what has happened
  static Register read() {
    Register value = 0;
    asm volatile("stmxcsr %0" : "=m"(value));
    return value;
  }
  static void write(Register value) {
    asm volatile("ldmxcsr %0" : : "m"(value) : "memory");
  }
#elif defined(__aarch64__)
  using Register = std::uint64_t;  // FPCR
  static constexpr Register kUsual = 0;
  static constexpr Register kFlags = 0;
  static Register read() {
    Register value = 0;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void write(Register value) {
    asm volatile("msr fpcr, %0" : : "r"(value) : "memory");
  }
#else
  using Register = std::uint32_t;
  static constexpr Register kUsual = 0;
  static constexpr Register kFlags = 0;
  static Register read() {
    return kUsual;
  }
  static void write(Register) {}
#endif
  bool is_foreign() const {
    return (callers_ & ~kFlags) != kUsual;
  }

  const Register callers_;
};

}  // namespace FARANDOLE_API
