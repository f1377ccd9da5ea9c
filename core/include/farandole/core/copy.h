// Copies that leave the caches alone.
#pragma once

#include <cstddef>

namespace farandole {

/// Like std::memcpy, but what is written goes to memory past the caches: for results larger than these, which would
/// otherwise be read first and push everything else out. Not ordered with other stores until `complete_streams`.
void stream(void* out, const void* in, std::size_t bytes);
/// What this thread has streamed becomes visible to others before whatever it stores afterwards.
void complete_streams();

}  // namespace farandole
