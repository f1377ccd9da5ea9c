// SPDX-License-Identifier: Apache-2.0
#include "operation/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "farandole/internal/stall_monitor.h"

namespace farandole {
namespace {

/// A size limit of the shared-memory algorithms: the measured value of a table that fits, unless the user has changed
/// the setting; otherwise the setting times `factor`.
std::size_t limit(std::int64_t SharedMemorySettings::*member, const Group& group, std::optional<std::size_t> measured,
                  std::size_t factor = 1) {
  const std::int64_t set = group.endpoint->settings().shared_memory.*member;
  const bool is_changed = set != SharedMemorySettings{}.*member;
  return measured && group.table_fits && !is_changed ? *measured : static_cast<std::size_t>(set) * factor;
}

// On oversubscribed hosts each wait costs a context switch. So one-shot, which reads more and waits less, is faster up
// to longer vectors.
constexpr std::size_t kOneShotFactorWhereOversubscribed = 4;

bool is_oversubscribed(const Group& group) {
  const Topology& topology = group.endpoint->topology();
  return std::any_of(group.members.begin(), group.members.end(),
                     [&](int member) { return topology.process(topology.rank(member).process).oversubscribed; });
}

}  // namespace

std::string Group::describe() const {
  if (carries_messages) return name;
  return name.empty() ? fmt::format("communicator {} of {} ranks", id, size())
                      : fmt::format("communicator '{}' of {} ranks", name, size());
}

StallMonitor Group::stall_monitor(bool always) const {
  const FaultSettings& setting = endpoint->settings().faults;
  if (!watches && !always) return {setting.warn_after, Seconds(0)};
  if (timeout.count() <= 0) return {setting.warn_after, setting.timeout};
  return {setting.warn_after, timeout, Clock::now(), "the timeout of the communicator"};
}

TuningShape Group::shape() const {
  const Topology& topology = endpoint->topology();
  std::set<int> found_hosts, processes;
  for (int index = 0; index < size(); ++index) {
    found_hosts.insert(host_of(index));
    processes.insert(topology.rank(member(index)).process);
  }
  TuningShape shape{size(), static_cast<int>(found_hosts.size()), ""};
  if (processes.size() < members.size() || size() == 1) shape.transport = endpoint->route(endpoint->rank()).name();
  if (processes.size() == 1) return shape;
  if (!shape.transport.empty()) shape.transport += "+";
  shape.transport += endpoint->route(farthest_member()).name();
  return shape;
}

int Group::farthest_member() const {
  const Topology& topology = endpoint->topology();
  const RankInfo& here = topology.rank(endpoint->rank());
  int other = endpoint->rank();
  for (const int member : members) {
    const RankInfo& there = topology.rank(member);
    if (there.host_index != here.host_index) return member;
    if (other == endpoint->rank() && there.process != here.process) other = member;
  }
  return other;
}

Group tuned(Group group) {
  const TuningTable* const table = group.table.get();
  group.table_fits = table != nullptr && table->shape == group.shape();
  group.one_shot_bytes =
      limit(&SharedMemorySettings::one_shot_bytes, group, table ? table->one_shot_bytes : std::nullopt,
            is_oversubscribed(group) ? kOneShotFactorWhereOversubscribed : 1);
  group.slice_bytes = limit(&SharedMemorySettings::slice_bytes, group, table ? table->slice_bytes : std::nullopt);
  return group;
}

}  // namespace farandole
