// SPDX-License-Identifier: Apache-2.0
// Communicators as they are after years of collectives.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "communicator/communicator_state.h"

namespace farandole {

class CommunicatorProbe {
 public:
  /// The communicator, which nobody has used yet, with another sequence number of its first collective; the same on all
  /// ranks. @param progress  as in CommunicatorOptions
  using Progress = CommunicatorOptions::Progress;
  static Communicator starting_at(Communicator unused, std::uint64_t sequence,
                                  Progress progress = Progress::kBackground) {
    Group group = unused.state_->group();
    unused = {};
    group.first_sequence = sequence;
    group.advances_in_background = progress == Progress::kBackground;
    return Communicator(std::make_shared<Communicator::State>(std::move(group)));
  }
};

}  // namespace farandole
