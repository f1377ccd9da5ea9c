// SPDX-License-Identifier: Apache-2.0
// Ids of a rank's communicators.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "farandole/sdk/transport.h"

namespace farandole {

/// Identifies a communicator in messages that may arrive after its end. The id may then belong to a new communicator;
/// the new communicator has a higher generation.
struct CommunicatorKey {
  std::uint16_t id = 0;
  std::uint64_t generation = 0;
};

/// Id of the channels that carry the point-to-point messages of all communicators; no communicator has this id.
inline constexpr std::uint16_t kMessageChannels = kMaxCommunicators - 1;

/// Communicator ids that a rank uses. To make a communicator, its ranks agree on ids that each of them has reserved; no
/// lock is held while they agree, so threads of a rank can make communicators at the same time. Thread-safe.
class CommunicatorIds {
 public:
  /// State of a communicator on this rank. Successive communicators with the same id have growing generations.
  enum class Stage {
    kNotMade,  ///< peers may have made the communicator already
    kInUse,
    kReleased,
  };
  class Reservation;

  CommunicatorIds() { uses_[kMessageChannels] = Use::kTaken; }
  /// Flags by id: 0 if the id is free, else 1.
  std::vector<std::uint8_t> used() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::uint8_t> flags(uses_.size());
    std::transform(uses_.begin(), uses_.end(), flags.begin(), [](Use use) { return use == Use::kFree ? 0 : 1; });
    return flags;
  }
  void take(const CommunicatorKey& key) {
    const std::lock_guard lock(mutex_);
    uses_[key.id] = Use::kTaken;
    generations_[key.id] = key.generation;
    latest_generation_ = std::max(latest_generation_, key.generation);
  }
  void release(std::uint16_t id) {
    const std::lock_guard lock(mutex_);
    uses_[id] = Use::kFree;
  }
  Stage stage_of(const CommunicatorKey& key) const {
    const std::lock_guard lock(mutex_);
    if (key.generation > generations_[key.id]) return Stage::kNotMade;
    return key.generation == generations_[key.id] && uses_[key.id] == Use::kTaken ? Stage::kInUse : Stage::kReleased;
  }
  /// Generation of the last communicator with this id; 0 if there was none.
  std::uint64_t generation_of(std::uint16_t id) const {
    const std::lock_guard lock(mutex_);
    return generations_[id];
  }

 private:
  enum class Use : std::uint8_t { kFree, kReserved, kTaken };
  mutable std::mutex mutex_;             // guards the members below
  std::uint64_t latest_generation_ = 0;  // of any communicator
  std::vector<Use> uses_ = std::vector<Use>(kMaxCommunicators, Use::kFree);
  std::vector<std::uint64_t> generations_ = std::vector<std::uint64_t>(kMaxCommunicators, 0);
};

/// Ids that a thread has reserved for a communicator which it makes, and the generation that it proposes for it. The
/// generation is higher than that of any earlier communicator with these ids. The ranks agree on the largest proposal.
///
///   CommunicatorIds::Reservation ids(endpoint.communicator_ids());
///   ids.take_lowest(1);
///   if (!peers_agree(ids)) ids.take(other_ids);
///   make_communicator(ids);  // calls CommunicatorIds::take
///   ids.keep();
///
/// Frees the ids in its destructor, unless `keep` was called. Not thread-safe.
class CommunicatorIds::Reservation {
 public:
  /// @param ids  outlives this object
  explicit Reservation(CommunicatorIds& ids) : owner_(ids) {}
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() { clear(); }

  /// The reserved ids, in the order in which they were chosen.
  const std::vector<std::uint16_t>& ids() const { return ids_; }
  /// Proposed generation; 0 if nothing is reserved.
  std::uint64_t generation() const { return generation_; }
  /// Reserves the `count` lowest free ids instead of the reserved ids. Reserves nothing if fewer are free.
  void take_lowest(std::size_t count) {
    const std::lock_guard lock(owner_.mutex_);
    free_ids();
    std::vector<std::uint16_t> lowest;
    for (std::size_t id = 0; id < owner_.uses_.size() && lowest.size() < count; ++id) {
      if (owner_.uses_[id] == Use::kFree) lowest.push_back(static_cast<std::uint16_t>(id));
    }
    if (lowest.size() == count) reserve(lowest);
  }
  /// Reserves `ids` instead of the reserved ids. Returns false and reserves nothing if one of them is not free.
  bool take(std::span<const std::uint16_t> ids) {
    const std::lock_guard lock(owner_.mutex_);
    free_ids();
    const bool are_free =
        std::all_of(ids.begin(), ids.end(), [this](auto id) { return owner_.uses_[id] == Use::kFree; });
    if (are_free) reserve(ids);
    return are_free;
  }
  /// Frees the reserved ids.
  void clear() {
    const std::lock_guard lock(owner_.mutex_);
    free_ids();
  }
  /// Leaves the ids to the communicator that has taken them.
  void keep() { ids_.clear(); }

 private:
  // The next two need the owner's mutex.
  void free_ids() {
    for (const std::uint16_t id : ids_) owner_.uses_[id] = Use::kFree;
    ids_.clear();
    generation_ = 0;
  }
  void reserve(std::span<const std::uint16_t> ids) {
    ids_.assign(ids.begin(), ids.end());
    for (const std::uint16_t id : ids) owner_.uses_[id] = Use::kReserved;
    generation_ = owner_.latest_generation_ + 1;
  }

  CommunicatorIds& owner_;
  std::vector<std::uint16_t> ids_;
  std::uint64_t generation_ = 0;
};

}  // namespace farandole
