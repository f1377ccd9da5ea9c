// SPDX-License-Identifier: Apache-2.0
// main() of the MPI backend's tests; the tests are in process_group_test.cpp, transport_test.cpp and vendor_test.cpp.
// Built once per MPI library. After the tests the job ends in the way that --end selects.
//   --thread-level=none|single|funneled|serialized|multiple
//                 none: the backend initialises MPI; otherwise this program does, with that thread level
//   --end=leave|abandon|fault|finalize   how the job ends
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "mpi_job.h"
#include "mpi_runtime.h"

namespace farandole::mpi {
namespace {

/// Process 0 fails; the others hear of it, and nobody waits for anybody.
void end_with_fault() {
  if (group->process() == 0) {
    ControlMessage control;
    control.error_kind = static_cast<std::uint32_t>(ErrorKind::kPeerLost);
    std::snprintf(control.text, sizeof(control.text), "rank 0 gave up");
    for (int process = 1; process < group->process_count(); ++process) group->post(process, control);
  } else {
    std::optional<ControlMessage> heard;
    wait_until("the fault", [&] {
      heard = group->poll();
      return heard.has_value();
    });
    EXPECT_STREQ(heard->text, "rank 0 gave up");
  }
  group.reset();
}

void end_with_finalize() {
  MPI_Finalize();
  int value = 0;
  EXPECT_THROW(group->transport().send({0, 0, 0, 0}, &value, 4), TransportError);
  EXPECT_THROW(group->poll(), TransportError);
  EXPECT_THROW(group->leave(), TransportError);
  group.reset();
}

void end_job(const std::string& way) {
  if (way == "leave") {
    group->leave();
    group.reset();
    int finalized = 0;
    MPI_Finalized(&finalized);
    EXPECT_EQ(finalized != 0, thread_level < 0) << "the backend finalises MPI if it has initialised it";
    if (thread_level < 0) {
      EXPECT_THROW(join(), Unsupported);
    }
  } else if (way == "abandon") {
    group.reset();
  } else if (way == "fault") {
    end_with_fault();
  } else {
    end_with_finalize();
  }
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) MPI_Finalize();
}

int run(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::string level = "none";
  std::string way = "leave";
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--thread-level=", 0) == 0) level = argument.substr(std::strlen("--thread-level="));
    if (argument.rfind("--end=", 0) == 0) way = argument.substr(std::strlen("--end="));
  }
  if (level != "none") {
    const std::vector<std::pair<std::string, int>> levels{{"single", MPI_THREAD_SINGLE},
                                                          {"funneled", MPI_THREAD_FUNNELED},
                                                          {"serialized", MPI_THREAD_SERIALIZED},
                                                          {"multiple", MPI_THREAD_MULTIPLE}};
    const auto wanted =
        std::find_if(levels.begin(), levels.end(), [&](const auto& each) { return each.first == level; });
    MPI_Init_thread(&argc, &argv, wanted->second, &thread_level);
    if (thread_level != wanted->second)
      std::printf("this MPI gives %s\n", std::string(thread_level_name(thread_level)).c_str());
  }
  group = join();
  const int failed = RUN_ALL_TESTS();
  end_job(way);
  return failed != 0 || testing::UnitTest::GetInstance()->Failed() ? 1 : 0;
}

}  // namespace
}  // namespace farandole::mpi

int main(int argc, char** argv) {
  return farandole::mpi::run(argc, argv);
}
