// SPDX-License-Identifier: Apache-2.0
// The listening socket of a process: connections that send nothing, and connections beyond the limit of open files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "farandole/internal/deadline.h"
#include "sanitizers.h"
#include "tcp/acceptor.h"
#include "tcp/stream.h"
#include "tcp_job.h"
#include "tcp_slots.h"

namespace farandole::tcp {
namespace {

/// Calls process 1 of 2, and says nothing.
struct SilentCaller {
  void advance() {
    called.advance([](const Introduction&) { return Verdict::kAccepted; },
                   [](const Introduction&, UniqueDescriptor) {});
  }

  UniqueDescriptor listener = listen_at(host_address(0));
  const UniqueDescriptor caller = start_connect(host_address(port_of(listener)), std::nullopt, Seconds(60));
  Acceptor called{std::move(listener), make_job_key(), {7, 1, 2, 0, Purpose::kMessages, 0}, Seconds(60)};
};

/// Has another soft limit of open files while it lives.
class OpenFilesLimit {
 public:
  explicit OpenFilesLimit(rlim_t soft) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit changed{soft, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &changed), 0);
  }
  OpenFilesLimit(const OpenFilesLimit&) = delete;
  OpenFilesLimit& operator=(const OpenFilesLimit&) = delete;
  ~OpenFilesLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  rlim_t soft() const {
    rlimit now{};
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &now), 0);
    return now.rlim_cur;
  }
  rlim_t hard() const { return before_.rlim_max; }

 private:
  rlimit before_{};
};

TEST(TcpAcceptor, RaisesTheLimitOfOpenFilesForItsConnections) {
  const TcpJob job(1);
  const OpenFilesLimit limit(256);
  const auto large = job.make(0, 300, job.key());
  EXPECT_GE(limit.soft(), std::min<rlim_t>(2 * 300, limit.hard()));
}

TEST(TcpAcceptor, WarnsIfCallersWaitAtTheOpenFilesLimit) {
  // The undefined-behaviour sanitizer, which is in the same builds, looks at memory through a pipe of its own.
  if (test::kAddressSanitizer) GTEST_SKIP() << "this sanitizer must open files";
  SilentCaller silent;
  const auto sockets = [&silent] {
    std::vector<pollfd> all;
    silent.called.add_to(all);
    return all;
  };
  auto listening = sockets();
  ASSERT_EQ(::poll(listening.data(), listening.size(), 20'000), 1);
  testing::internal::CaptureStderr();
  {
    const OpenFilesLimit limit(0);
    silent.advance();
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("process 1: calls of other processes wait, because this one has too many open files"));
  EXPECT_EQ(sockets().size(), 1U) << "the listening one";
  silent.advance();
  EXPECT_EQ(sockets().size(), 2U);
}

// Each look costs as many system calls as there are callers.
TEST(TcpAcceptor, ASilentCallerIsNotLookedAtAgainAndAgain) {
  SilentCaller silent;
  Acceptor& callers = silent.called;
  EXPECT_FALSE(callers.has_new(Clock::now()));
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  const Clock::time_point before = Clock::now();
  while (!callers.has_new(before) && !deadline.passed()) silent.advance();
  EXPECT_TRUE(callers.has_new(before));
  EXPECT_FALSE(callers.has_new(Clock::now() + std::chrono::milliseconds(50)));
}

}  // namespace
}  // namespace farandole::tcp
