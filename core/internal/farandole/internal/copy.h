// SPDX-License-Identifier: Apache-2.0
// Copies with non-temporal stores, which bypass the caches.
#pragma once

#include <cstddef>

namespace farandole {

/// Like std::memcpy, but writes `out` by non-temporal stores. For results larger than the caches: ordinary stores would
/// first read the lines of `out` and evict everything else. The stores are not ordered with other stores until
/// `complete_non_temporal_stores`.
/// @param next  if not null, address of `bytes` bytes that this thread will read soon: prefetched during the copy. The
/// address need not be valid.
void copy_non_temporal(void* out, const void* in, std::size_t bytes, const void* next = nullptr);
/// Orders this thread's non-temporal stores before its later stores (a store fence).
void complete_non_temporal_stores();

}  // namespace farandole
