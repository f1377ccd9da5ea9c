// SPDX-License-Identifier: Apache-2.0
// Messages over the sockets between the processes of one host, in jobs without MPI.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "sockets/link_transport.h"

namespace farandole::local {

using sockets::Link;

/// Connections of this process by peer process; null for this process itself.
using Links = std::vector<std::unique_ptr<Link>>;

/// Carries the messages that do not go through shared memory, over one connection per pair of processes.
class LocalTransport final : public sockets::LinkTransport {
 public:
  explicit LocalTransport(const Links& links) : links_(links) {}

  std::string_view name() const override { return "local"; }
  LinkCost cost() const override { return {5.0, 1e6 / 2e9}; }

 private:
  // Both kinds of traffic share a connection: inside a host few messages are long enough to delay others.
  Link* link_with(int process, Traffic) override { return links_[static_cast<std::size_t>(process)].get(); }
  Link* find_link(int process, Traffic traffic) const override {
    return traffic == Traffic::kShort ? links_[static_cast<std::size_t>(process)].get() : nullptr;
  }

  const Links& links_;
};

}  // namespace farandole::local
