// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace farandole {

void copy_non_temporal(void* out, const void* in, std::size_t bytes, const void* next) {
#if defined(__x86_64__)
  auto* to = static_cast<std::byte*>(out);
  const auto* from = static_cast<const std::byte*>(in);
  constexpr std::size_t kLineBytes = 64;
  const std::size_t head = std::min(bytes, -reinterpret_cast<std::uintptr_t>(to) % kLineBytes);
  std::memcpy(to, from, head);
  const std::size_t end = head + (bytes - head) / kLineBytes * kLineBytes;
  for (std::size_t i = head; i < end; i += kLineBytes) {
    // The hardware prefetcher does not see the stream of `next` during the copy.
    if (next != nullptr) _mm_prefetch(static_cast<const char*>(next) + i, _MM_HINT_T0);
    const auto* source = reinterpret_cast<const __m128i*>(from + i);
    auto* target = reinterpret_cast<__m128i*>(to + i);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  std::memcpy(to + end, from + end, bytes - end);
#else
  (void)next;
  std::memcpy(out, in, bytes);
#endif
}

void complete_non_temporal_stores() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace farandole
