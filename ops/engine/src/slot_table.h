// SPDX-License-Identifier: Apache-2.0
// Requests that the ranks of a process set know by number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "request.h"

namespace farandole {

/// A *slot* is the number of a request. A rank announces the request by one byte there, instead of by name.
///
/// Invariants:
/// - The tables of all ranks are equal: they change only by what all ranks have received, and no answer depends on
///   time, on what this rank has pending, or on the order of a hash table.
/// - A slot is free, or belongs to one name. A name has one slot at most.
/// - A free slot is taken before the table grows. It grows above its limit only where each of its slots has been used
///   in the negotiation under way.
class SlotTable {
 public:
  static constexpr int kNone = -1;
  struct Slot {
    SharedSpec spec;  ///< null: free
    /// A rank has announced it in a step. Where none has, a request in a step is announced by name: all ranks must know
    /// whether its failure is that of a step.
    bool in_step = false;
    std::uint64_t last_negotiation = 0;  ///< that used it
  };

  /// @param most_slots  at least 1
  explicit SlotTable(std::size_t most_slots) : most_slots_(most_slots) {}

  const Slot& operator[](int slot) const { return slots_[static_cast<std::size_t>(slot)]; }
  std::size_t size() const { return slots_.size(); }
  /// @returns  the slot of this name, or kNone
  int find(const std::string& name) const;
  /// @returns  the slot that says all that ranks compare of this request, or kNone: then it is announced by name
  int find(const RequestSpec& spec, bool in_step) const;

  /// @returns  the slot that the caller retires before it adds one: the least recently used of a full table, or kNone
  int surplus(std::uint64_t negotiation) const;
  /// A slot for a name that has none.
  int add(SharedSpec spec, bool in_step, std::uint64_t negotiation);
  void use(int slot, std::uint64_t negotiation) {
    slots_[static_cast<std::size_t>(slot)].last_negotiation = negotiation;
  }
  /// The slot is free again.
  void retire(int slot);

 private:
  friend class NegotiatorProbe;  // tests compare the tables of all ranks

  const std::size_t most_slots_;
  std::vector<Slot> slots_;
  std::vector<int> free_;  // the last is taken first
  std::unordered_map<std::string, int> slot_of_;
};

}  // namespace farandole
