// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace farandole::test {

// GCC says so by macros, Clang by features.
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

/// How much longer than without a sanitizer a test may take; FARANDOLE_TEST_SLOWNESS in CMake is the same.
inline constexpr int kSlowness = kAddressSanitizer || kThreadSanitizer ? 6 : 1;

}  // namespace farandole::test
