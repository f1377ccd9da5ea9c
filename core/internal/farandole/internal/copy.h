// SPDX-License-Identifier: Apache-2.0
// Copies that leave the caches alone.
#pragma once

#include <cstddef>

namespace farandole {

/// Like std::memcpy, but what is written goes to memory by non-temporal stores: for results larger than these, which
/// would otherwise be read first and push everything else out. Not ordered with other stores until
/// `complete_non_temporal_stores`.
/// @param next  if not null, as many bytes that this thread reads soon: they are fetched meanwhile. Need not exist.
void copy_non_temporal(void* out, const void* in, std::size_t bytes, const void* next = nullptr);
/// What this thread has written by non-temporal stores becomes visible to other threads before whatever it stores
/// afterwards.
void complete_non_temporal_stores();

}  // namespace farandole
