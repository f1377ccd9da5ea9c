// SPDX-License-Identifier: Apache-2.0
#include "engine_health.h"

#include <barrier>

#include "engine_harness.h"
#include "farandole/internal/communicator_access.h"
#include "variable.h"

namespace farandole::testing {
namespace {

using test::Variable;

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The engine is older than the deadline, which must count from the request.
TEST(EngineHealth, CountsTheTimeSinceTheRequestBeganToWait) {
  const Variable warn_after("FARANDOLE_WARN_AFTER", "10"), timeout("FARANDOLE_TIMEOUT", "25");
  std::barrier end(2);
  run_replicas(2, [&](Communicator& job) {
    Timeline timeline;
    Inbox inbox(job.rank(), internals(job).endpoint());
    ProcessSets sets(job, inbox, timeline, 1);
    EngineHealth health(job.rank(), internals(job).endpoint());
    if (job.rank() == 0) {
      const auto submitted = Clock::now() + std::chrono::hours(1);
      // The engine looks ten times a second.
      Clock::duration looked{};
      const auto warnings_at = [&](Clock::duration waited) {
        ::testing::internal::CaptureStderr();
        for (; looked < waited; looked += std::chrono::milliseconds(100)) {
          health.check(sets, inbox.progress_count(), submitted + looked);
        }
        health.check(sets, inbox.progress_count(), submitted + waited);
        return ::testing::internal::GetCapturedStderr();
      };
      EXPECT_EQ(warnings_at(std::chrono::seconds(0)), "") << "nothing is pending";
      PendingTensors pending;
      inbox.submit(request_of("x", {{1.0F}}, {}, pending));
      sets.take_inbox(submitted);
      EXPECT_EQ(warnings_at(std::chrono::seconds(9)), "");
      EXPECT_THAT(warnings_at(std::chrono::seconds(10)),
                  HasSubstr("rank 0 has been waiting for 10.0 s for allreduce 'x' f32[1]"));
      EXPECT_EQ(warnings_at(std::chrono::seconds(11)), "");
      EXPECT_FALSE(internals(job).endpoint().faults().exist());
      EXPECT_EQ(warnings_at(std::chrono::seconds(25)), "");
      try {
        internals(job).endpoint().faults().check();
        ADD_FAILURE() << "the deadline has passed";
      } catch (const Timeout& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("deadline of 25 s"), HasSubstr("for 25.0 s for allreduce 'x'")));
      }
      sets.fail({ErrorKind::kTimeout, "late"});
      DueCallbacks due;
      sets.take_due(due);
      due.run();
      EXPECT_TRUE(pending.front()->error.has_value());
    }
    end.arrive_and_wait();
  });
}

}  // namespace
}  // namespace farandole::testing
