// SPDX-License-Identifier: Apache-2.0
// Channels over the sockets between the processes of a host that no MPI started.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "sockets/link_transport.h"

namespace farandole::local {

using sockets::Link;

/// The connections of a process, by process; none with itself.
using Links = std::vector<std::unique_ptr<Link>>;

/// Carries what does not go through shared memory.
class LocalTransport final : public sockets::LinkTransport {
 public:
  explicit LocalTransport(const Links& links) : links_(links) {}

  std::string_view name() const override { return "local"; }
  LinkCost cost() const override { return {5.0, 1e6 / 2e9}; }

 private:
  // One connection carries all: a host's own has little in it that could be waited for.
  Link* link_with(int process, Traffic) override { return links_[static_cast<std::size_t>(process)].get(); }
  Link* find_link(int process, Traffic traffic) const override {
    return traffic == Traffic::kShort ? links_[static_cast<std::size_t>(process)].get() : nullptr;
  }

  const Links& links_;
};

}  // namespace farandole::local
