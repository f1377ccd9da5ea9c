// Copies that leave the caches alone.
#pragma once

#include <cstddef>

namespace farandole {

/// Like std::memcpy, but what is written goes to memory past the caches: for results larger than these, which would
/// otherwise be read first and push everything else out. Complete and visible to all when it returns.
void copy_streaming(void* out, const void* in, std::size_t bytes);

/// The size of the last-level cache, or 32 MiB where the system does not say.
std::size_t last_level_cache_bytes();

}  // namespace farandole
