// SPDX-License-Identifier: Apache-2.0
// Table of slots: numbers for the requests that all ranks of a process set know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "request.h"

namespace farandole {

/// A *slot* is the number of a request that all ranks have announced by name. From then on a rank announces the request
/// by a byte.
///
/// Invariants:
/// - All ranks have equal tables: a table changes only by data that all ranks have received, and no result depends on
///   time, on this rank's pending requests, or on the order of a hash table.
/// - A slot is free or belongs to a name, and each name has at most one slot.
/// - A free slot is reused before the table grows. The table grows above its limit only if every slot has been used in
///   the current negotiation.
class SlotTable {
 public:
  static constexpr int kNone = -1;
  struct Slot {
    SharedSpec spec;  ///< null: free
    /// True if a rank has announced the request in a step. While this is false, a rank that submits the request in a
    /// step announces it by name, so that all ranks know that the request's failure fails a step.
    bool in_step = false;
    std::uint64_t last_negotiation = 0;  ///< last negotiation that used the slot
  };

  /// @param max_slots  maximum number of slots; at least 1
  explicit SlotTable(std::size_t max_slots) : max_slots_(max_slots) {}

  const Slot& operator[](int slot) const { return slots_[static_cast<std::size_t>(slot)]; }
  std::size_t size() const { return slots_.size(); }
  /// Returns the slot of this name, or kNone.
  int find(const std::string& name) const;
  /// Returns the slot whose description equals this request's, or kNone: the rank must then announce the request by
  /// name.
  int find(const RequestSpec& spec, bool in_step) const;

  /// Returns the slot that the caller must retire before it adds a slot: the least recently used slot of a full table.
  /// Returns kNone if the table has room, or if every slot has been used in this negotiation.
  int eviction_candidate(std::uint64_t negotiation) const;
  /// Adds a slot for a name without a slot.
  int add(SharedSpec spec, bool in_step, std::uint64_t negotiation);
  /// Notes that this negotiation uses the slot.
  void use(int slot, std::uint64_t negotiation) {
    slots_[static_cast<std::size_t>(slot)].last_negotiation = negotiation;
  }
  /// Frees the slot.
  void retire(int slot);

 private:
  friend class NegotiatorProbe;  // tests check that all ranks have the same table

  const std::size_t max_slots_;
  std::vector<Slot> slots_;
  std::vector<int> free_;  // free slots; the last is taken first
  std::unordered_map<std::string, int> slot_of_;
};

}  // namespace farandole
