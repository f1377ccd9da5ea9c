// SPDX-License-Identifier: Apache-2.0
// A small cache that evicts the least recently used values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <list>
#include <utility>

namespace farandole {

/// Cache with least-recently-used eviction. Use it for few values: a lookup compares all keys, one after the other. The
/// sum of the values' costs stays within the capacity. Capacity and costs have the same unit, for example values (each
/// costs 1) or bytes. The newest value stays in the cache even if its cost exceeds the capacity. Not thread-safe.
///
///     RecentlyUsed<int, std::string> cache(/*capacity=*/100);
///     const std::string* text = cache.find(7);
///     if (text == nullptr) cache.add(7, describe(7));
template <class Key, class Value>
class RecentlyUsed {
 public:
  explicit RecentlyUsed(std::size_t capacity) : capacity_(capacity) {}

  /// Returns the value and marks it as the most recently used; null if the key is not in the cache. The pointer is
  /// valid until the next `add`.
  const Value* find(const Key& key) {
    const auto found =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
    if (found == entries_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found);
    return &found->value;
  }
  /// Adds a value, and evicts older values that no longer fit. @param key  not in the cache yet
  void add(Key key, Value value, std::size_t cost = 1) {
    entries_.push_front({std::move(key), std::move(value), cost});
    used_ += cost;
    while (used_ > capacity_ && entries_.size() > 1) {
      used_ -= entries_.back().cost;
      entries_.pop_back();
    }
  }
  /// Sum of the costs of all values.
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
