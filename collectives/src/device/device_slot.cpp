// SPDX-License-Identifier: Apache-2.0
#include "device/device_slot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "farandole/core/error.h"
#include "messages/scheduled_collective.h"

namespace farandole {
namespace {

// Up to so many ranks are all connected when a group is made; more connect when an algorithm first needs it.
constexpr int kFullMesh = 16;

template <std::size_t kSize>
void write_text(std::array<char, kSize>& to, std::string_view text) {
  std::memcpy(to.data(), text.data(), std::min(text.size(), kSize - 1));
}

}  // namespace

/// Every rank's claim to every rank.
class DeviceSlot::Exchange final : public Operation {
 public:
  Exchange(const Group& group, const Claim& own, std::uint64_t sequence)
      : own_(own), claims_(static_cast<std::size_t>(group.size())) {
    Call call;
    call.collective = Collective::kAllgather;
    call.input = {&own_, sizeof own_, DType::kU8};
    call.output = {claims_.data(), claims_.size() * sizeof own_, DType::kU8};
    const Algorithm& ring = *find_algorithm(Collective::kAllgather, "ring");
    gathering_ = std::make_unique<ScheduledCollective>(group, call, selected_bytes(call, group.size()),
                                                       Selection::schedule(ring, 1), sequence);
  }
  State advance() override { return gathering_->advance(); }
  std::vector<int> waits_for() const override { return gathering_->waits_for(); }
  Aftermath withdraw() override { return gathering_->withdraw(); }
  const std::vector<Claim>& claims() const { return claims_; }

 private:
  const Claim own_;
  std::vector<Claim> claims_;
  std::unique_ptr<ScheduledCollective> gathering_;
};

DeviceSlot::DeviceSlot(const Group& group) : group_(group) {}
DeviceSlot::~DeviceSlot() = default;

DeviceContext& DeviceSlot::context() {
  if (context_ == nullptr) context_ = DeviceContext::of(group_.endpoint);
  return *context_;
}

bool DeviceSlot::bring_up(std::uint64_t sequence, DeviceOrder::Time made) {
  if (is_up()) return true;
  if (joining_ == nullptr) {
    if (exchange_ == nullptr) exchange_ = std::make_unique<Exchange>(group_, make_claim(), sequence);
    if (exchange_->advance() != Operation::State::kDone) return false;
    const auto exchange = std::exchange(exchange_, nullptr);
    check(exchange->claims());
    begin_joining(exchange->claims().front().id);
  }
  if (!joining_->is_done()) return false;
  const auto joining = std::exchange(joining_, nullptr);
  joining->check();
  devices_ = std::move(*joined_);
  context().add(devices_, made);
  return true;
}

DeviceSlot::Claim DeviceSlot::make_claim() {
  DeviceContext& own = context();
  const RankInfo& self = group_.endpoint->topology().rank(group_.endpoint->rank());
  Claim claim;
  claim.host = self.host_index;
  claim.ordinal = own.device().info().ordinal;
  write_text(claim.identity, own.device().info().identity);
  write_text(claim.version, own.runtime().version());
  write_text(claim.problem, own.runtime().collectives_missing());
  if (group_.rank == 0 && claim.problem[0] == '\0') {
    try {
      claim.id = own.device().make_group_id();
    } catch (const Error& error) {
      write_text(claim.problem, error.what());
    }
  }
  return claim;
}

/// All ranks have the same claims, and so come to the same end.
void DeviceSlot::check(const std::vector<Claim>& claims) const {
  const auto describe = [&](std::size_t rank) {
    return group_.endpoint->topology().describe(group_.member(static_cast<int>(rank)));
  };
  for (std::size_t rank = 0; rank < claims.size(); ++rank) {
    const Claim& claim = claims[rank];
    if (claim.problem[0] != '\0') {
      throw Unsupported(
          fmt::format("{} can not take part in collectives on devices: {}", describe(rank), claim.problem.data()));
    }
    if (claim.version != claims.front().version) {
      throw Unsupported(fmt::format("{} has {}, and {} has {}; give all ranks the same", describe(0),
                                    claims.front().version.data(), describe(rank), claim.version.data()));
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

void DeviceSlot::begin_joining(const DeviceGroupId& id) {
  joined_ = std::make_shared<std::unique_ptr<DeviceGroup>>();
  joining_ = context().thread().run([joined = joined_, id, rank = group_.rank, size = group_.size(),
                                     &device = context().device(), stream = context().stream()] {
    auto made = device.join_group(id, rank, size);
    std::vector<int> peers;
    for (int peer = 0; peer < size && size <= kFullMesh; ++peer) {
      if (peer != rank) peers.push_back(peer);
    }
    made->connect(peers, stream);
    *joined = std::move(made);
  });
}

std::vector<int> DeviceSlot::waits_for() const {
  return exchange_ ? exchange_->waits_for() : group_.members;
}

Aftermath DeviceSlot::withdraw() {
  if (joining_ != nullptr) context().abandon();
  if (exchange_ == nullptr) return Aftermath::kNone;
  const Aftermath aftermath = exchange_->withdraw();
  if (aftermath != Aftermath::kNone) keep_until_exit(std::move(exchange_));
  exchange_.reset();
  return Aftermath::kNone;
}

void DeviceSlot::close() {
  devices_.reset();
  context_.reset();
}

}  // namespace farandole
