// SPDX-License-Identifier: Apache-2.0
// The floating-point mode of all reductions and scalings.
#pragma once

#include <cstdint>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// Scope in which the calling thread computes in the default floating-point mode of a process: round to nearest, keep
/// subnormals, no traps. If the constructor has changed the mode, the destructor restores the caller's mode and
/// exception flags. No-op on processors other than x86-64 and AArch64.
///
/// A reduction runs on whichever thread advances the collective, and programs change the mode of some threads
/// (TensorFlow's pools flush subnormals). Without a fixed mode the ranks would get different bits. Operands must be
/// loaded and results stored within the scope, because compilers move arithmetic across changes of the mode.
/// Cost: reading one register, a few cycles; the register is written only if the caller's mode differs.
class FloatMode {
 public:
  FloatMode() : callers_(read()) {
    if (differs()) [[unlikely]] {
      write(kDefault);
    }
  }
  ~FloatMode() {
    if (differs()) [[unlikely]] {
      write(callers_);
    }
  }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
#if defined(__x86_64__)
  using Register = std::uint32_t;  // MXCSR
  static constexpr Register kDefault = 0x1f80;
  static constexpr Register kFlags = 0x3f;  // sticky exception flags
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
  static constexpr Register kDefault = 0;
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
  static constexpr Register kDefault = 0;
  static constexpr Register kFlags = 0;
  static Register read() {
    return kDefault;
  }
  static void write(Register) {}
#endif
  bool differs() const {
    return (callers_ & ~kFlags) != kDefault;
  }

  const Register callers_;
};

}  // namespace FARANDOLE_API
