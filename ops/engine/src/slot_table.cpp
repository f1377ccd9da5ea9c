// SPDX-License-Identifier: Apache-2.0
#include "slot_table.h"

#include <algorithm>
#include <utility>

namespace farandole {

int SlotTable::find(const std::string& name) const {
  const auto found = slot_of_.find(name);
  return found == slot_of_.end() ? kNone : found->second;
}

int SlotTable::find(const RequestSpec& spec, bool in_step) const {
  const int slot = find(spec.name);
  if (slot == kNone) return kNone;
  const Slot& known = (*this)[slot];
  return *known.spec == spec && (known.in_step || !in_step) ? slot : kNone;
}

int SlotTable::eviction_candidate(std::uint64_t negotiation) const {
  if (!free_.empty() || slots_.size() < max_slots_) return kNone;
  const auto oldest = std::min_element(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) {
    return a.last_negotiation < b.last_negotiation;
  });
  return oldest->last_negotiation < negotiation ? static_cast<int>(oldest - slots_.begin()) : kNone;
}

int SlotTable::add(SharedSpec spec, bool in_step, std::uint64_t negotiation) {
  int slot = static_cast<int>(slots_.size());
  if (free_.empty()) {
    slots_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  slot_of_[spec->name] = slot;
  slots_[static_cast<std::size_t>(slot)] = {std::move(spec), in_step, negotiation};
  return slot;
}

void SlotTable::retire(int slot) {
  Slot& freed = slots_[static_cast<std::size_t>(slot)];
  slot_of_.erase(freed.spec->name);
  freed = {};
  free_.push_back(slot);
}

}  // namespace farandole
