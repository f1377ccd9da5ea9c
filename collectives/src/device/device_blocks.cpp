// SPDX-License-Identifier: Apache-2.0
#include "device/device_blocks.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "farandole/internal/forked_children.h"

namespace farandole {

DeviceBlocks::~DeviceBlocks() {
  if (!collect()) keep_until_the_end(std::move(released_));
}

void* DeviceBlocks::add(DeviceScratch memory, std::size_t bytes) {
  void* const address = memory.get();
  const std::lock_guard lock(mutex_);
  blocks_[address] = {std::move(memory), bytes, {}};
  return address;
}

DeviceBlocks::Block* DeviceBlocks::find(const void* address) {
  const auto after = blocks_.upper_bound(const_cast<void*>(address));
  if (after == blocks_.begin()) return nullptr;
  const auto found = std::prev(after);
  const auto* const begin = static_cast<const std::byte*>(found->first);
  return static_cast<const std::byte*>(address) < begin + found->second.bytes ? &found->second : nullptr;
}

void DeviceBlocks::note_use(const void* address, const std::shared_ptr<const CallEnds>& ends, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  Block* const block = find(address);
  if (block == nullptr) return;
  for (Use& use : block->uses) {
    // A CallEnds that no longer exists may have had the same address.
    if (use.ends != ends.get() || use.user.expired()) continue;
    use.number = number;
    return;
  }
  std::erase_if(block->uses, [](const Use& use) { return use.user.expired(); });
  block->uses.push_back({ends, ends.get(), number});
}

void DeviceBlocks::note_use(const void* address, const std::shared_ptr<const void>& user) {
  const std::lock_guard lock(mutex_);
  Block* const block = find(address);
  if (block == nullptr) return;
  std::erase_if(block->uses, [](const Use& use) { return use.user.expired(); });
  block->uses.push_back({user});
}

bool DeviceBlocks::is_in_use(const Block& block) {
  return std::any_of(block.uses.begin(), block.uses.end(), [](const Use& use) {
    const std::shared_ptr<const void> user = use.user.lock();
    return user != nullptr && (use.ends == nullptr || !use.ends->include(use.number));
  });
}

void DeviceBlocks::release(void* memory) {
  Block block;  // returned to the pool after the lock is released, if it is unused
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(memory);
  if (found == blocks_.end()) return;
  block = std::move(found->second);
  blocks_.erase(found);
  if (is_in_use(block)) released_.push_back(std::move(block));
}

bool DeviceBlocks::collect() {
  std::vector<Block> unused;  // returned to the pool after the lock is released
  const std::lock_guard lock(mutex_);
  const auto first =
      std::partition(released_.begin(), released_.end(), [](const Block& block) { return is_in_use(block); });
  unused.assign(std::make_move_iterator(first), std::make_move_iterator(released_.end()));
  released_.erase(first, released_.end());
  return released_.empty();
}

}  // namespace farandole
