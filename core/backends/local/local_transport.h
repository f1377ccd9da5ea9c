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
  Link* link_with(int process) override { return find_link(process); }
  Link* find_link(int process) const override { return links_[static_cast<std::size_t>(process)].get(); }

  const Links& links_;
};

}  // namespace farandole::local
