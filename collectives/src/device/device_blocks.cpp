// SPDX-License-Identifier: Apache-2.0
#include "device/device_blocks.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "farandole/internal/forked_children.h"

namespace farandole {

DeviceBlocks::~DeviceBlocks() {
  if (is_forked_child()) {
    keep_until_the_end(std::move(blocks_));
    keep_until_the_end(std::move(released_));
    return;
  }
  if (collect().are_left) keep_until_the_end(std::move(released_));
}

void* DeviceBlocks::add(DeviceScratch memory, std::size_t bytes) {
  void* const address = memory.get();
  const std::lock_guard lock(mutex_);
  blocks_[address] = {std::move(memory), bytes, {}};
  return address;
}

template <class Visit>
void DeviceBlocks::for_each(const void* memory, std::size_t bytes, const Visit& visit) {
  const auto* const begin = static_cast<const std::byte*>(memory);
  auto block = blocks_.upper_bound(const_cast<void*>(memory));
  if (block != blocks_.begin()) {
    const auto before = std::prev(block);
    if (begin < static_cast<const std::byte*>(before->first) + before->second.bytes) visit(before->second);
  }
  for (; block != blocks_.end() && static_cast<const std::byte*>(block->first) < begin + bytes; ++block) {
    visit(block->second);
  }
}

void DeviceBlocks::note_use(const void* memory, std::size_t bytes, const std::shared_ptr<const CallEnds>& ends,
                            std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  for_each(memory, bytes, [&](Block& block) {
    std::erase_if(block.uses, [](const Use& use) { return use.has_ended(); });
    for (Use& use : block.uses) {
      if (use.ends.lock() != ends) continue;
      use.number = number;
      return;
    }
    block.uses.push_back({{}, ends, number});
  });
}

void DeviceBlocks::note_use(const void* memory, std::size_t bytes, const std::shared_ptr<const BlockUser>& user) {
  const std::lock_guard lock(mutex_);
  for_each(memory, bytes, [&](Block& block) {
    std::erase_if(block.uses, [](const Use& use) { return use.has_ended(); });
    block.uses.push_back({user, {}, 0});
  });
}

bool DeviceBlocks::Use::has_ended() const {
  if (number == 0) return operation.expired();
  const std::shared_ptr<const CallEnds> calls = ends.lock();
  return calls == nullptr || calls->include(number);
}

bool DeviceBlocks::Use::is_on_device() const {
  const std::shared_ptr<const BlockUser> user = operation.lock();
  return user == nullptr || user->is_enqueued.load(std::memory_order_relaxed);
}

bool DeviceBlocks::is_in_use(const Block& block) {
  return std::any_of(block.uses.begin(), block.uses.end(), [](const Use& use) { return !use.has_ended(); });
}

void DeviceBlocks::release(void* memory) {
  if (is_forked_child()) return;
  Block block;  // returned to the pool after the lock is released, if it is unused
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(memory);
  if (found == blocks_.end()) return;
  block = std::move(found->second);
  blocks_.erase(found);
  if (is_in_use(block)) released_.push_back(std::move(block));
}

DeviceBlocks::Released DeviceBlocks::collect() {
  std::vector<Block> unused;  // returned to the pool after the lock is released
  const std::lock_guard lock(mutex_);
  const auto first =
      std::partition(released_.begin(), released_.end(), [](const Block& block) { return is_in_use(block); });
  unused.assign(std::make_move_iterator(first), std::make_move_iterator(released_.end()));
  released_.erase(first, released_.end());
  returned_ += unused.size();
  const bool are_running = std::any_of(released_.begin(), released_.end(), [](const Block& block) {
    return std::all_of(block.uses.begin(), block.uses.end(), [](const Use& use) { return use.is_on_device(); });
  });
  return {returned_, !released_.empty(), are_running};
}

}  // namespace farandole
