// SPDX-License-Identifier: Apache-2.0
#include "shared_memory/peer_buffers.h"

namespace farandole {

std::uint64_t PeerBuffers::locate(const void* data, std::size_t bytes) const {
  if (by_address_) return reinterpret_cast<std::uintptr_t>(data);
  return memory_.offset_of(data, bytes).value_or(kUnreachable);
}

std::byte* PeerBuffers::resolve(int local, std::uint64_t location) const {
  if (by_address_) return reinterpret_cast<std::byte*>(location);  // NOLINT(performance-no-int-to-ptr)
  return memory_.at(processes_[static_cast<std::size_t>(local)], location);
}

}  // namespace farandole
