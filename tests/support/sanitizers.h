// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace farandole::test {

// GCC defines macros for sanitizers; Clang has __has_feature.
#if defined(__has_feature)
#define FARANDOLE_HAS_FEATURE(name) __has_feature(name)
#else
#define FARANDOLE_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || FARANDOLE_HAS_FEATURE(address_sanitizer)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
#if defined(__SANITIZE_THREAD__) || FARANDOLE_HAS_FEATURE(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#undef FARANDOLE_HAS_FEATURE

/// Factor by which a test may take longer with a sanitizer; equals FARANDOLE_TEST_SLOWNESS in CMake.
inline constexpr int kSlowness = kAddressSanitizer || kThreadSanitizer ? 6 : 1;

}  // namespace farandole::test
