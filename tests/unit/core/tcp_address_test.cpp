// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "farandole/core/error.h"
#include "message_of.h"
#include "tcp/address.h"

namespace farandole::tcp {
namespace {

Address v4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d, std::uint16_t port = 0) {
  return {4, port, {a, b, c, d}};
}
Address v6(std::uint8_t first, std::uint8_t last, std::uint16_t port = 0) {
  Address address{6, port, {first, 1}};
  address.bytes[15] = last;
  return address;
}
Address loopback6() {
  Address address{6, 0, {}};
  address.bytes[15] = 1;
  return address;
}

const std::vector<InterfaceAddress> kInterfaces{{"lo", v4(127, 0, 0, 1), 8},        {"lo", loopback6(), 128},
                                                {"docker0", v4(172, 17, 0, 1), 16}, {"eth0", v4(203, 0, 113, 5), 24},
                                                {"eth1", v4(10, 1, 2, 3), 20},      {"eth1", v6(0x20, 3), 64}};

TEST(TcpAddress, RoundTripsThroughSockaddrAndPrintsAsText) {
  for (const Address& address : {v4(10, 0, 0, 1, 4711), v6(0x20, 7, 80), v4(255, 255, 255, 255), Address{6, 9, {}}}) {
    sockaddr_storage storage{};
    EXPECT_GT(to_sockaddr(address, storage), 0U);
    EXPECT_EQ(from_sockaddr(reinterpret_cast<const sockaddr&>(storage)), address);
  }
  EXPECT_EQ(to_text(v4(10, 0, 0, 1, 4711)), "10.0.0.1:4711");
  EXPECT_EQ(to_text(v4(10, 0, 0, 1)), "10.0.0.1");
  EXPECT_EQ(to_text(v6(0x20, 7, 80)), "[2001::7]:80");
  const sockaddr unknown{AF_UNIX, {}};
  EXPECT_THROW(from_sockaddr(unknown), InvalidArgument);
}

TEST(TcpAddress, PrefixLengthNeedNotBeAMultipleOf8) {
  const InterfaceAddress& own = kInterfaces[4];
  EXPECT_TRUE(is_in_network(v4(10, 1, 15, 9), own));
  EXPECT_FALSE(is_in_network(v4(10, 1, 16, 9), own));
  EXPECT_FALSE(is_in_network(v6(10, 9), own));
}

TEST(TcpAddress, AnInterfaceIsChosenByNameOrNetwork) {
  EXPECT_THAT(choose_own_addresses(kInterfaces, "eth1"), testing::ElementsAre(v4(10, 1, 2, 3), v6(0x20, 3)));
  EXPECT_THAT(choose_own_addresses(kInterfaces, "10.0.0.0/8"), testing::ElementsAre(v4(10, 1, 2, 3)));
  EXPECT_THAT(choose_own_addresses(kInterfaces, "2001::/16"), testing::ElementsAre(v6(0x20, 3)));
  EXPECT_THAT(choose_own_addresses(kInterfaces, "203.0.113.5"), testing::ElementsAre(v4(203, 0, 113, 5)));
  EXPECT_THAT(choose_own_addresses(kInterfaces, "lo"), testing::ElementsAre(v4(127, 0, 0, 1), loopback6()));
}

TEST(TcpAddress, UnmatchedInterfaceErrorListsAllInterfaces) {
  for (const char* choice : {"eth7", "192.168.0.0/16", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/8x", "/8", "10.0.0"}) {
    const std::string message = test::message_of<InvalidArgument>([&] { choose_own_addresses(kInterfaces, choice); });
    EXPECT_THAT(message, testing::HasSubstr("FARANDOLE_NETWORK_INTERFACE is '" + std::string(choice)));
    EXPECT_THAT(message, testing::HasSubstr("eth1 10.1.2.3/20")) << choice;
  }
}

TEST(TcpAddress, LoopbackIsUsedOnlyAsLastResort) {
  EXPECT_THAT(choose_own_addresses(kInterfaces, ""),
              testing::UnorderedElementsAre(v4(172, 17, 0, 1), v4(203, 0, 113, 5), v4(10, 1, 2, 3), v6(0x20, 3)));
  const std::vector<InterfaceAddress> alone{kInterfaces[0]};
  EXPECT_THAT(choose_own_addresses(alone, ""), testing::ElementsAre(v4(127, 0, 0, 1)));
}

TEST(TcpAddress, NearAddressesAreTriedFirstAndOwnAddressesLast) {
  const std::vector<Address> of_peer{v4(172, 17, 0, 1, 9), v4(192, 0, 2, 8, 9), v4(10, 1, 3, 4, 9), v6(0x20, 4, 9)};
  EXPECT_THAT(order_by_reach(of_peer, kInterfaces),
              testing::ElementsAre(v4(10, 1, 3, 4, 9), v6(0x20, 4, 9), v4(192, 0, 2, 8, 9), v4(172, 17, 0, 1, 9)));
}

TEST(TcpAddress, ThisHostHasAddresses) {
  EXPECT_FALSE(interface_addresses().empty());
}

}  // namespace
}  // namespace farandole::tcp
