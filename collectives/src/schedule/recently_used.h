// SPDX-License-Identifier: Apache-2.0
// What was made for an earlier call, kept for the next one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <list>
#include <utility>

namespace farandole {

/// Keeps the values that were asked for last, as many as fit the capacity by their costs: a number of values where each
/// costs 1, or bytes. The newest one stays whatever it costs. Looks through all keys, so it is for few. Not
/// thread-safe.
template <class Key, class Value>
class RecentlyUsed {
 public:
  explicit RecentlyUsed(std::size_t capacity) : capacity_(capacity) {}

  /// From now on the most recently used one; null: there is none of that key. Valid until the next `add`.
  const Value* find(const Key& key) {
    const auto found =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
    if (found == entries_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found);
    return &found->value;
  }
  /// @param key  of which there is none
  void add(Key key, Value value, std::size_t cost = 1) {
    entries_.push_front({std::move(key), std::move(value), cost});
    used_ += cost;
    while (used_ > capacity_ && entries_.size() > 1) {
      used_ -= entries_.back().cost;
      entries_.pop_back();
    }
  }
  /// The costs of all values together.
  std::size_t used() const { return used_; }

 private:
  struct Entry {
    Key key;
    Value value;
    std::size_t cost;
  };
  const std::size_t capacity_;
  std::size_t used_ = 0;
  std::list<Entry> entries_;  // most recently used first
};

}  // namespace farandole
