// SPDX-License-Identifier: Apache-2.0
// Processes of one machine that detect each other without /proc.
#include "sockets/presence.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace farandole::sockets {
namespace {

using Nonce = std::array<unsigned char, 16>;

Nonce nonce_of(unsigned char last) {
  Nonce nonce{0, 0xff, '/'};
  nonce.back() = last;
  nonce[8] = static_cast<unsigned char>(getpid());
  nonce[9] = static_cast<unsigned char>(getpid() >> 8);
  return nonce;
}

TEST(Presence, IsFoundByItsNonceWhileItLasts) {
  const Nonce nonce = nonce_of(1), another = nonce_of(2);
  EXPECT_FALSE(find_present(nonce));
  {
    const UniqueDescriptor announced = announce_presence(nonce);
    ASSERT_TRUE(announced);
    EXPECT_EQ(find_present(nonce), getpid());
    EXPECT_EQ(find_present(nonce), getpid()) << "asked again";
    EXPECT_FALSE(find_present(another));
    EXPECT_FALSE(announce_presence(nonce)) << "the name is taken";
  }
  EXPECT_FALSE(find_present(nonce));
}

TEST(Presence, AnotherProcessSeesItsNumber) {
  const Nonce nonce = nonce_of(3);
  const UniqueDescriptor announced = announce_presence(nonce);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) _exit(find_present(nonce) == parent ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace farandole::sockets
