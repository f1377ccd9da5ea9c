// SPDX-License-Identifier: Apache-2.0
// Joining and leaving, control messages, and the data that all processes exchange when they join.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "farandole/core/error.h"
#include "farandole/sdk/backend.h"
#include "mpi_job.h"

namespace farandole::mpi {
namespace {

TEST(MpiControlMessages, ArriveInTheOrderOfTheirSender) {
  constexpr std::uint64_t kControlMessages = 20;
  for (std::uint64_t i = 0; i < kControlMessages; ++i) {
    for (int process = 0; process < group->process_count(); ++process) {
      ControlMessage control;
      control.kind = ControlMessage::Kind::kQuery;
      control.process = group->process();
      control.sequence = i;
      std::snprintf(control.text, sizeof(control.text), "from %d", group->process());
      group->post(process, control);
    }
  }
  std::vector<std::uint64_t> seen(static_cast<std::size_t>(group->process_count()));
  wait_until("control messages", [&] {
    while (const auto control = group->poll()) {
      EXPECT_EQ(control->sequence, seen[static_cast<std::size_t>(control->process)]++);
      EXPECT_EQ(control->text, "from " + std::to_string(control->process));
    }
    return std::all_of(seen.begin(), seen.end(), [](std::uint64_t count) { return count == kControlMessages; });
  });
  EXPECT_FALSE(group->poll().has_value());
  barrier();
}

TEST(MpiProcessGroup, GathersBytesInOrderOfProcesses) {
  const std::array<int, 3> mine{group->process(), group->process() * 2, 7};
  std::vector<std::array<int, 3>> all(static_cast<std::size_t>(group->process_count()));
  group->allgather(mine.data(), all.data(), sizeof(mine));
  for (int process = 0; process < group->process_count(); ++process) {
    EXPECT_EQ(all[static_cast<std::size_t>(process)], (std::array<int, 3>{process, process * 2, 7}));
  }
}

TEST(MpiProcessGroup, TellsFromWhichThreadsItMayBeUsed) {
  if (thread_level == MPI_THREAD_SINGLE || thread_level == MPI_THREAD_FUNNELED) {
    EXPECT_EQ(group->thread_use(), ThreadUse::kMainThreadOnly);
    EXPECT_NE(group->thread_advice().find("call MPI_Init_thread with MPI_THREAD_MULTIPLE"), std::string::npos);
  } else {
    EXPECT_EQ(group->thread_use(),
              thread_level == MPI_THREAD_SERIALIZED ? ThreadUse::kOneThreadAtATime : ThreadUse::kAnyThread);
    EXPECT_EQ(group->thread_advice(), "");
  }
}

TEST(MpiJoin, UsesTheCommunicatorThatIsPassed) {
  MPI_Comm half = MPI_COMM_NULL;
  ASSERT_EQ(MPI_Comm_split(MPI_COMM_WORLD, group->process() % 2, -group->process(), &half), MPI_SUCCESS);
  const auto joined = join(static_cast<int>(MPI_Comm_c2f(half)));
  int rank = -1;
  int size = -1;
  MPI_Comm_rank(half, &rank);
  MPI_Comm_size(half, &size);
  EXPECT_EQ(joined->process(), rank);
  EXPECT_EQ(joined->process_count(), size);
  exchange(*joined, 0, 2500, 3);
  joined->leave();
  EXPECT_THROW(barrier(*joined), TransportError) << "the job was left";
  MPI_Comm_free(&half);
  exchange(*group, 0, 10, 4);
}

TEST(MpiJoin, RefusesCommunicatorsThatCannotBeJoined) {
  EXPECT_THROW(join(static_cast<int>(MPI_Comm_c2f(MPI_COMM_NULL))), InvalidArgument);
}

TEST(MpiJoin, WorksAgainAfterLeaving) {
  for (int turn = 0; turn < 3; ++turn) {
    const auto joined = join();
    exchange(*joined, 0, 100, static_cast<unsigned>(turn));
    joined->leave();
  }
}

TEST(MpiJoin, FindsAndLoadsThePluginOfTheMpiThatRuns) {
  const Settings settings;
  const BackendChoice choice = choose_backend(settings, {});
  EXPECT_EQ(choice.plugin, FARANDOLE_MPI_PLUGIN);
  EXPECT_EQ(choice.launched_size, group->process_count());
  Backend& backend = load_backend(choice.plugin, settings);
  EXPECT_EQ(backend.name(), FARANDOLE_MPI_PLUGIN);
  EXPECT_EQ(&backend, &load_backend(choice.plugin, settings));
  EXPECT_EQ(
      backend.version().rfind(std::string_view(FARANDOLE_MPI_PLUGIN) == "mpi_openmpi" ? "Open MPI " : "MPICH ", 0), 0U)
      << backend.version();
  const auto joined = backend.join(settings, {});
  joined->set_topology(make_topology(joined->process_count()));
  exchange(*joined, 0, 100, 8);
  joined->leave();

  Settings other;
  other.launch.mpi = std::string_view(FARANDOLE_MPI_PLUGIN) == "mpi_openmpi" ? "mpich" : "openmpi";
  EXPECT_THROW(choose_backend(other, {}), InvalidArgument);
}

}  // namespace
}  // namespace farandole::mpi
