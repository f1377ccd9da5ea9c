// SPDX-License-Identifier: Apache-2.0
// Ids of a rank's communicators.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
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

/// Communicator ids that a rank uses. To make a communicator, its ranks agree on an id that is free on all of them,
/// while each rank holds `creation_mutex`. Thread-safe.
class CommunicatorIds {
 public:
  /// State of a communicator on this rank. Successive communicators with the same id have growing generations.
  enum class Stage {
    kNotMade,  ///< peers may have made the communicator already
    kInUse,
    kReleased,
  };

  CommunicatorIds() { used_[kMessageChannels] = 1; }
  /// Flags by id: 1 if the id is in use, else 0.
  std::vector<std::uint8_t> used() const {
    const std::lock_guard lock(mutex_);
    return used_;
  }
  /// Held while a communicator is made, so that the rank takes the agreed id before another thread looks for a free id.
  std::mutex& creation_mutex() { return creation_mutex_; }
  void take(const CommunicatorKey& key) {
    const std::lock_guard lock(mutex_);
    used_[key.id] = 1;
    generations_[key.id] = key.generation;
  }
  void release(std::uint16_t id) {
    const std::lock_guard lock(mutex_);
    used_[id] = 0;
  }
  Stage stage_of(const CommunicatorKey& key) const {
    const std::lock_guard lock(mutex_);
    if (key.generation > generations_[key.id]) return Stage::kNotMade;
    return key.generation == generations_[key.id] && used_[key.id] != 0 ? Stage::kInUse : Stage::kReleased;
  }
  /// Generation of the last communicator with this id; 0 if there was none.
  std::uint64_t generation_of(std::uint16_t id) const {
    const std::lock_guard lock(mutex_);
    return generations_[id];
  }
  /// Proposes the generation of a new communicator, while the rank holds `creation_mutex`. The ranks agree on the
  /// largest proposal.
  std::uint64_t propose_generation() const { return latest_generation_ + 1; }
  void accept_generation(std::uint64_t agreed) { latest_generation_ = std::max(latest_generation_, agreed); }

 private:
  std::mutex creation_mutex_;
  std::uint64_t latest_generation_ = 0;  // guarded by creation_mutex_
  mutable std::mutex mutex_;
  std::vector<std::uint8_t> used_ = std::vector<std::uint8_t>(kMaxCommunicators, 0);           // guarded by mutex_
  std::vector<std::uint64_t> generations_ = std::vector<std::uint64_t>(kMaxCommunicators, 0);  // guarded by mutex_
};

}  // namespace farandole
