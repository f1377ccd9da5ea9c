// SPDX-License-Identifier: Apache-2.0
#include "fusion_buffers.h"

#include <algorithm>
#include <bit>

namespace farandole {
namespace {

constexpr std::size_t kMinBufferBytes = 64 << 10;
/// Large, so that few buffers are made: allocating device memory blocks.
constexpr std::size_t kMinDeviceBufferBytes = 8 << 20;
constexpr std::size_t kMaxFreeBuffers = 8;

}  // namespace

Buffer FusionBuffers::take(std::size_t bytes) {
  const auto fits =
      std::find_if(free_.begin(), free_.end(), [&](const Buffer& buffer) { return buffer.count() >= bytes; });
  if (fits == free_.end()) {
    ++made_;
    const std::size_t least = space_.is_host() ? kMinBufferBytes : kMinDeviceBufferBytes;
    return communicator_.allocate(std::bit_ceil(std::max(bytes, least)), DType::kU8, space_);
  }
  Buffer taken = std::move(*fits);
  free_.erase(fits);
  return taken;
}

void FusionBuffers::give_back(Buffer buffer) {
  const auto larger =
      std::find_if(free_.begin(), free_.end(), [&](const Buffer& each) { return each.count() >= buffer.count(); });
  free_.insert(larger, std::move(buffer));
  if (space_.is_host() && free_.size() > kMaxFreeBuffers) free_.erase(free_.begin());
}

}  // namespace farandole
