// SPDX-License-Identifier: Apache-2.0
#include "local/local_process_group.h"

#include <fmt/format.h>
#include <poll.h>

#include <utility>
#include <vector>

#include "farandole/internal/forked_children.h"

namespace farandole::local {

namespace {

/// Sockets left open in a child would hide the end of this process from its peers, and keep its process number in use.
void drop_sockets_in_child(LocalProcessGroup& group) {
  group.drop_sockets();
}
using GroupsInChildren = ForkedChildren<LocalProcessGroup, drop_sockets_in_child>;

class LocalBackend final : public Backend {
 public:
  std::string_view name() const override { return "local"; }
  std::string version() const override { return "sockets of this host"; }
  std::unique_ptr<ProcessGroup> join(const Settings& settings, const JoinOptions&) override {
    return std::make_unique<LocalProcessGroup>(LocalJob{settings.launch.job, static_cast<int>(settings.launch.rank),
                                                        static_cast<int>(settings.launch.size),
                                                        settings.faults.warn_after, settings.faults.timeout});
  }
};

}  // namespace

LocalProcessGroup::LocalProcessGroup(const LocalJob& job)
    : SocketProcessGroup(job.process, job.processes, job.warn_after, job.timeout) {
  Rendezvous rendezvous = join_job(job);
  listener_ = std::move(rendezvous.listener);
  for (UniqueDescriptor& socket : rendezvous.sockets) {
    links_.push_back(socket ? std::make_unique<Link>(std::move(socket), fmt::format("process {}", links_.size()))
                            : nullptr);
  }
  GroupsInChildren::add(this);
}

LocalProcessGroup::~LocalProcessGroup() {
  GroupsInChildren::remove(this);
  flush_at_end();
}

void LocalProcessGroup::drop_sockets() {
  const UniqueDescriptor closed(std::move(listener_));
  for (const auto& link : links_) {
    if (link) link->drop_socket();
  }
}

std::string LocalProcessGroup::loss_reason(int process) {
  Link* const link = find_link(process);
  return link != nullptr && link->is_closed() ? link->end_reason() : std::string();
}

void LocalProcessGroup::rest() {
  std::vector<pollfd> sockets;
  for (const auto& link : links_) {
    if (link) sockets.push_back({link->descriptor(), POLLIN, 0});
  }
  ::poll(sockets.data(), sockets.size(), 1);
}

Backend& local_backend() {
  static LocalBackend backend;
  return backend;
}

}  // namespace farandole::local
