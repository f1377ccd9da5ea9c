// SPDX-License-Identifier: Apache-2.0
#include "device/device_slot.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/fixed_text.h"
#include "farandole/internal/log.h"
#include "messages/scheduled_collective.h"

namespace farandole {
namespace {

std::optional<Hierarchy> hierarchy_of(const Group& group) {
  Hierarchy hierarchy = Hierarchy::by_host(group);
  if (hierarchy.host_count() < 2) return std::nullopt;
  return hierarchy;
}

}  // namespace

/// Allgather of the ranks' claims, by messages in host memory (ring).
class DeviceSlot::ClaimExchange final : public Operation {
 public:
  ClaimExchange(const Group& group, const Claim& own, std::uint64_t sequence)
      : own_(own), claims_(static_cast<std::size_t>(group.size())) {
    Call call;
    call.collective = Collective::kAllgather;
    call.input = {&own_, sizeof own_, DType::kU8};
    call.output = {claims_.data(), claims_.size() * sizeof own_, DType::kU8};
    const Algorithm& ring = *find_algorithm(Collective::kAllgather, "ring");
    gathering_ = std::make_unique<ScheduledCollective>(group, call, PreparedCall(call, group.size()).bytes,
                                                       Selection::schedule(ring, 1), sequence);
  }
  State advance() override { return gathering_->advance(); }
  std::vector<int> waits_for() const override { return gathering_->waits_for(); }
  BufferHazard withdraw() override { return gathering_->withdraw(); }
  const std::vector<Claim>& claims() const { return claims_; }

 private:
  const Claim own_;
  std::vector<Claim> claims_;
  std::unique_ptr<ScheduledCollective> gathering_;
};

DeviceSlot::DeviceSlot(const Group& group)
    : group_(group),
      hierarchy_(hierarchy_of(group)),
      context_ref_(std::in_place, group.endpoint),
      may_share_(!group.direct) {
  if (group.size() == 1) state_of(DeviceReach::kAll).is_up = true;
}
DeviceSlot::~DeviceSlot() = default;

DeviceContext& DeviceSlot::context() {
  if (!context_ref_) group_.endpoint->faults().check_world();  // closed: raises that the World has ended
  if (context_ == nullptr) context_ = &context_ref_->context();
  return *context_;
}

std::vector<int> DeviceSlot::ranks_with(int rank, DeviceReach reach) const {
  if (reach == DeviceReach::kHost && hierarchy_) return hierarchy_->ranks_of(hierarchy_->place_of(rank).host);
  std::vector<int> ranks(group_.members.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::vector<int> DeviceSlot::members(DeviceReach reach) const {
  std::vector<int> members;
  for (const int rank : ranks_with(group_.rank, reach)) members.push_back(group_.member(rank));
  return members;
}

bool DeviceSlot::bring_up(DeviceReach reach, std::uint64_t sequence, DeviceOrder::Time made_at) {
  GroupState& own = state_of(reach);
  if (own.is_up) return true;
  if (joining_ == nullptr) {
    if (exchange_ == nullptr) {
      if (claiming_ == nullptr) begin_claiming(reach);
      if (!claiming_->is_done()) return false;
      claiming_->check();
      claiming_.reset();
      exchange_ = std::make_unique<ClaimExchange>(group_, *claim_, sequence);
    }
    if (exchange_->advance() != Operation::State::kDone) return false;
    const auto exchange = std::exchange(exchange_, nullptr);
    check(exchange->claims(), reach);
    warn_of_versions(exchange->claims());
    if (!are_decided(exchange->claims(), reach)) {
      may_share_ = false;
      return false;
    }
    sends_device_memory_ = std::all_of(exchange->claims().begin(), exchange->claims().end(),
                                       [](const Claim& claim) { return claim.sends_device_memory != 0; });
    const bool is_there = have_group(exchange->claims(), group_.rank, reach);
    if (is_there) own.devices = std::move(shared_group_.devices);
    own.is_up = is_there || ranks_with(group_.rank, reach).size() == 1;
    if (own.is_up) return true;
    begin_joining(exchange->claims(), reach);
  }
  if (!joining_->is_done()) return false;
  const auto joining = std::exchange(joining_, nullptr);
  joining->check();
  own.devices = std::move(*joined_);
  own.is_up = true;
  context().add({members(reach), made_at, own.devices, !group_.direct});
  return true;
}

bool DeviceSlot::have_group(const std::vector<Claim>& claims, int rank, DeviceReach reach) const {
  const std::vector<int> ranks = ranks_with(rank, reach);
  const DeviceOrder::Time made_at = claims[static_cast<std::size_t>(rank)].made_at;
  return made_at != 0 && std::all_of(ranks.begin(), ranks.end(), [&](int other) {
           return claims[static_cast<std::size_t>(other)].made_at == made_at;
         });
}

bool DeviceSlot::are_decided(const std::vector<Claim>& claims, DeviceReach reach) const {
  // The first rank of a group makes an id, unless that rank already has a group (`made_at` is not 0).
  for (int rank = 0; rank < group_.size(); ++rank) {
    const auto first = static_cast<std::size_t>(ranks_with(rank, reach).front());
    if (claims[first].made_at != 0 && !have_group(claims, rank, reach)) return false;
  }
  return true;
}

void DeviceSlot::begin_claiming(DeviceReach reach) {
  shared_group_ = may_share_ ? context().group_of(members(reach)) : DeviceContext::Group{};
  DeviceContext& own = context();
  const RankInfo& self = group_.endpoint->topology().rank(group_.endpoint->rank());
  const std::vector<int> ranks = ranks_with(group_.rank, reach);
  claim_ = std::make_shared<Claim>();
  Claim& claim = *claim_;
  claim.host = self.host_index;
  claim.ordinal = own.device().info().ordinal;
  if (hierarchy_) {
    const int elsewhere = hierarchy_->ranks_of((hierarchy_->host + 1) % hierarchy_->host_count()).front();
    claim.sends_device_memory = group_.route(elsewhere).can_send(own.space().kind) ? 1 : 0;
  }
  write_text(claim.identity, own.device().info().identity);
  const bool is_alone = ranks.size() == 1;
  if (!is_alone) claim.made_at = shared_group_.made_at;
  const bool makes_id = !is_alone && group_.rank == ranks.front() && claim.made_at == 0;
  claiming_ = own.thread().run([shared = claim_, is_alone, makes_id, &runtime = own.runtime(), &device = own.device()] {
    write_text(shared->version, runtime.version());
    write_text(shared->collectives, runtime.collectives_version());
    if (!is_alone) write_text(shared->problem, runtime.collectives_missing());
    if (!makes_id || shared->problem[0] != '\0') return;
    try {
      shared->id = device.make_group_id();
    } catch (const Error& error) {
      write_text(shared->problem, error.message());
    }
  });
}

/// All ranks check the same claims, and so throw the same error.
void DeviceSlot::check(const std::vector<Claim>& claims, DeviceReach reach) const {
  const auto describe = [&](std::size_t rank) {
    return group_.endpoint->topology().describe(group_.member(static_cast<int>(rank)));
  };
  for (std::size_t rank = 0; rank < claims.size(); ++rank) {
    const Claim& claim = claims[rank];
    if (claim.problem[0] != '\0') {
      throw Unsupported(
          fmt::format("{} cannot take part in collectives on devices: {}", describe(rank), claim.problem.data()));
    }
    const auto first = static_cast<std::size_t>(ranks_with(static_cast<int>(rank), reach).front());
    if (claim.collectives != claims[first].collectives) {
      throw Unsupported(fmt::format("{} has {}, and {} has {}; give all ranks the same", describe(first),
                                    claims[first].version.data(), describe(rank), claim.version.data()));
    }
    for (std::size_t other = 0; other < rank; ++other) {
      if (claims[other].host != claim.host || claims[other].identity != claim.identity) continue;
      if (context_->runtime().shares_devices()) continue;
      throw Unsupported(
          fmt::format("{} and {} use the same device ({}); give each rank a device of its own: see "
                      "FARANDOLE_DEVICE and CUDA_VISIBLE_DEVICES",
                      describe(other), describe(rank), claim.identity.data()));
    }
  }
}

void DeviceSlot::warn_of_versions(const std::vector<Claim>& claims) const {
  static std::atomic_flag has_warned;
  const auto other = std::find_if(claims.begin(), claims.end(),
                                  [&](const Claim& claim) { return claim.version != claims.front().version; });
  if (group_.rank != 0 || other == claims.end() || has_warned.test_and_set()) return;
  const auto describe = [&](int rank) { return group_.endpoint->topology().describe(group_.member(rank)); };
  log(LogLevel::kWarning, fmt::format("{} has {}, and {} has {}: devices work together all the same", describe(0),
                                      claims.front().version.data(), describe(static_cast<int>(other - claims.begin())),
                                      other->version.data()));
}

void DeviceSlot::begin_joining(const std::vector<Claim>& claims, DeviceReach reach) {
  const std::vector<int> ranks = ranks_with(group_.rank, reach);
  const auto place = std::find(ranks.begin(), ranks.end(), group_.rank) - ranks.begin();
  joined_ = std::make_shared<std::unique_ptr<DeviceGroup>>();
  joining_ = context().thread().run([joined = joined_, id = claims[static_cast<std::size_t>(ranks.front())].id,
                                     rank = static_cast<int>(place), size = static_cast<int>(ranks.size()),
                                     &device = context().device()] { *joined = device.join_group(id, rank, size); });
}

std::vector<int> DeviceSlot::waits_for() const {
  return exchange_ ? exchange_->waits_for() : group_.members;
}

BufferHazard DeviceSlot::withdraw() {
  if (joining_ != nullptr) context().abandon();
  if (exchange_ == nullptr) return BufferHazard::kNone;
  const BufferHazard hazard = exchange_->withdraw();
  if (hazard != BufferHazard::kNone) keep_until_exit(std::move(exchange_));
  exchange_.reset();
  return BufferHazard::kNone;
}

void DeviceSlot::close() {
  for (GroupState& each : group_states_) each.devices.reset();
  context_ = nullptr;
  context_ref_.reset();
}

}  // namespace farandole
