// SPDX-License-Identifier: Apache-2.0
#include "faults/peer_message_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "farandole/core/error.h"
#include "faults/clean_shutdown.h"

namespace farandole {
namespace {

TEST(FromPeers, ImplausiblePeerInfoIsRefused) {
  HostProof::Claim good;
  good.pid = 4711;
  std::string_view("node7").copy(good.hostname, sizeof good.hostname);
  EXPECT_NO_THROW(check_claim(1, good, 1));
  EXPECT_NO_THROW(check_claim(1, good, kMaxReplicas));
  for (const int replicas : {-1, 0, kMaxReplicas + 1, 1 << 30}) {
    EXPECT_THROW(check_claim(1, good, replicas), TransportError);
  }
  HostProof::Claim endless = good;
  std::fill_n(endless.hostname, sizeof endless.hostname, 'x');
  EXPECT_THROW(check_claim(1, endless, 1), TransportError);
  HostProof::Claim nobody = good;
  nobody.pid = -1;
  EXPECT_THROW(check_claim(1, nobody, 1), TransportError);
}

TEST(FromPeers, ControlMessageMustNameExistingRanks) {
  const Topology topology({{0, 1, 11, "a", false}, {0, 2, 12, "a", false}});
  ControlMessage control;
  control.process = 1;
  for (const auto kind : {ControlMessage::Kind::kFault, ControlMessage::Kind::kLeave, ControlMessage::Kind::kQuery,
                          ControlMessage::Kind::kReply}) {
    control.kind = kind;
    control.rank = 2;
    EXPECT_NO_THROW(check_control_message(control, topology));
    control.rank = 3;
    EXPECT_THROW(check_control_message(control, topology), TransportError);
    control.rank = 0;
    if (kind == ControlMessage::Kind::kFault || kind == ControlMessage::Kind::kLeave) {
      EXPECT_NO_THROW(check_control_message(control, topology));
    } else {
      EXPECT_THROW(check_control_message(control, topology), TransportError) << "it is not its sender's";
    }
  }
  control.kind = ControlMessage::Kind::kAllLeave;
  control.sequence = CleanShutdown::kRounds;
  EXPECT_THROW(check_control_message(control, topology), TransportError) << "leaving has no such round";
}

}  // namespace
}  // namespace farandole
