// SPDX-License-Identifier: Apache-2.0
// Access for tests to the private state of Communicators: sets sequence numbers that a job reaches after years, and
// simulates hosts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "communicator/communicator_state.h"
#include "farandole/internal/communicator_access.h"

namespace farandole {

class CommunicatorProbe {
 public:
  // Each function returns a changed copy of a communicator that has not been used yet.

  /// Sets the sequence number of the first collective, the same on all ranks. @param progress  as in
  /// CommunicatorOptions
  using Progress = CommunicatorOptions::Progress;
  static Communicator starting_at(Communicator unused, std::uint64_t sequence,
                                  Progress progress = Progress::kBackground) {
    return changed(std::move(unused), [&](Group& group) {
      group.first_sequence = sequence;
      group.progress = progress;
    });
  }
  /// Simulates hosts. @param hosts  host of each rank
  static Communicator on_hosts(Communicator unused, const std::vector<int>& hosts) {
    return changed(std::move(unused), [&](Group& group) { group.hosts = hosts; });
  }
  /// Simulates hosts, and sends all messages by another transport. @param transport  makes the other transport from the
  /// transport between two ranks of this process; its result must outlive the communicator
  template <class MakeTransport>
  static Communicator on_hosts_by(Communicator unused, const std::vector<int>& hosts, const MakeTransport& transport) {
    return changed(std::move(unused), [&](Group& group) {
      group.hosts = hosts;
      group.transport = &transport(group.route(group.rank == 0 ? 1 : 0));
    });
  }
  /// Sets a tuning table in which this algorithm was the fastest.
  static Communicator measured(Communicator unused, Collective collective, const std::string& algorithm) {
    return changed(std::move(unused), [&](Group& group) {
      auto table = std::make_shared<TuningTable>();
      table->shape = group.shape();
      table->of(collective) = {{kUnknownBytes, algorithm, 1, 0}};
      group.table = std::move(table);
    });
  }

 private:
  template <class Change>
  static Communicator changed(Communicator unused, const Change& change) {
    Group group = internals(unused).state().group();
    unused = {};
    change(group);
    return CommunicatorAccess::make(std::make_shared<Communicator::State>(std::move(group)));
  }
};

}  // namespace farandole
