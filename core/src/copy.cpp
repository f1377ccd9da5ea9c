#include "farandole/core/copy.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace farandole {

void copy_streaming(void* out, const void* in, std::size_t bytes) {
#if defined(__x86_64__)
  auto* to = static_cast<std::byte*>(out);
  const auto* from = static_cast<const std::byte*>(in);
  constexpr std::size_t kLineBytes = 64;
  const std::size_t head = std::min(bytes, -reinterpret_cast<std::uintptr_t>(to) % kLineBytes);
  std::memcpy(to, from, head);
  const std::size_t end = head + (bytes - head) / kLineBytes * kLineBytes;
  for (std::size_t i = head; i < end; i += kLineBytes) {
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
  // Streaming stores are not ordered with others.
  _mm_sfence();
#else
  std::memcpy(out, in, bytes);
#endif
}

std::size_t last_level_cache_bytes() {
  static const std::size_t bytes = [] {
    for (const int level : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
      const long size = sysconf(level);
      if (size > 0) return static_cast<std::size_t>(size);
    }
    return std::size_t{32} << 20;
  }();
  return bytes;
}

}  // namespace farandole
