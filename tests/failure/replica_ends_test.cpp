// SPDX-License-Identifier: Apache-2.0
// The exception that run_replicas throws, and what it logs while it waits for the replicas to end.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <latch>
#include <stdexcept>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "variable.h"

namespace farandole {
namespace {

using test::Variable;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(ReplicaEnds, TheCauseIsRethrownEvenIfItComesLast) {
  const Variable quiet("FARANDOLE_LOG", "off");
  for (const int failing : {0, 1, 2}) {
    std::latch others_have_raised(2);
    try {
      run_replicas(3, [&](Communicator& ranks) {
        if (ranks.rank() == failing) {
          ranks.abort("no more data");  // as the trainer does when code of the program throws
          others_have_raised.wait();
          throw std::out_of_range("no more data");
        }
        struct AtEnd {
          std::latch& latch;
          ~AtEnd() { latch.count_down(); }
        } const at_end{others_have_raised};
        ranks.barrier();
      });
      ADD_FAILURE() << "no exception";
    } catch (const std::out_of_range& error) {
      EXPECT_STREQ(error.what(), "no more data");
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << failing << " has failed, but this came: " << error.what();
    }
  }
}

TEST(ReplicaEnds, WithoutAnExceptionOfTheCauseTheFirstIsRethrown) {
  const Variable quiet("FARANDOLE_LOG", "off");
  EXPECT_THROW(run_replicas(2,
                            [](Communicator& ranks) {
                              if (ranks.rank() == 1) return ranks.abort("enough");
                              ranks.barrier();
                            }),
               PeerLost);
}

/// Standard error of this process, while this object exists.
class StandardError {
 public:
  StandardError() {
    std::fflush(stderr);
    if (::pipe2(ends_, O_CLOEXEC) != 0 || (before_ = ::dup(STDERR_FILENO)) < 0) std::abort();
    ::dup2(ends_[1], STDERR_FILENO);
  }
  ~StandardError() {
    ::dup2(before_, STDERR_FILENO);
    for (const int descriptor : {ends_[0], ends_[1], before_}) ::close(descriptor);
  }
  StandardError(const StandardError&) = delete;
  StandardError& operator=(const StandardError&) = delete;

  /// Returns the next line; blocks until there is one.
  std::string line() {
    std::string text;
    for (char next = 0; ::read(ends_[0], &next, 1) == 1 && next != '\n';) text += next;
    return text;
  }

 private:
  int ends_[2] = {-1, -1};
  int before_ = -1;
};

TEST(ReplicaEnds, AReplicaThatHangsIsNamedWhileItIsWaitedFor) {
  const Variable timeout("FARANDOLE_TIMEOUT", "0.3");
  for (const int hung : {0, 2}) {
    StandardError log;
    std::string line;
    std::string thrown;
    try {
      run_replicas(3, [&](Communicator& ranks) {
        std::vector<float> data(8);
        if (ranks.rank() == hung) {
          do line = log.line();  // hangs until the line has come
          while (line.find("Still running") == std::string::npos);
        } else {
          ranks.allreduce(data, ReduceOp::kSum);
        }
      });
    } catch (const Timeout& error) {
      thrown = error.what();
    }
    EXPECT_THAT(thrown, AllOf(HasSubstr("Timeout: rank"), HasSubstr("the deadline of 0.3 s")));
    const std::string name = "rank " + std::to_string(hung) + " (host";
    EXPECT_THAT(line, AllOf(HasSubstr("has ended with an error"), HasSubstr("Still running, and waited for: " + name),
                            HasSubstr(thrown)));
    EXPECT_THAT(line.substr(line.find("waited for"), 60), Not(HasSubstr("rank 1 ("))) << "rank 1 has ended";
  }
}

TEST(ReplicaEnds, NothingIsLoggedIfAllEndSoon) {
  testing::internal::CaptureStderr();
  EXPECT_THROW(run_replicas(3,
                            [](Communicator& ranks) {
                              if (ranks.rank() == 1) throw std::runtime_error("no more data");
                              ranks.barrier();
                            }),
               std::runtime_error);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("Still running")));
}

}  // namespace
}  // namespace farandole
