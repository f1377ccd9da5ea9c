// SPDX-License-Identifier: Apache-2.0
#include "farandole/sdk/backend.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "farandole/core/error.h"
#include "message_of.h"

namespace farandole {
namespace {

using test::message_of;
using testing::ExitedWithCode;

/// Every test starts without a launcher, whatever started the tests.
class BackendTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kVariables) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      unsetenv(name);
    }
    directory_ = std::filesystem::path(testing::TempDir()) / ("farandole-backend-test-" + std::to_string(getpid()));
    settings_.process.plugin_directory = directory_.string();
  }
  void TearDown() override {
    for (const char* name : kVariables) unsetenv(name);
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
    std::filesystem::remove_all(directory_);
  }

  /// A file of this name that no loader accepts.
  void put_plugin(const char* name) const {
    std::filesystem::create_directories(directory_);
    std::ofstream(directory_ / name) << "no library";
  }

  BackendChoice choose() const { return choose_backend(settings_, {}); }

  /// True if a child of a process that has joined a job runs alone unless its environment gives it a rank.
  bool is_alone_unless_told_its_rank() {
    const BackendChoice alone = choose();
    JoinOptions of_parents_mpi;
    of_parents_mpi.mpi_communicator = 0;
    const std::string refusal = message_of<InvalidArgument>([&] { choose_backend(settings_, of_parents_mpi); });
    settings_.launch.rank = 0;
    settings_.launch.size = 2;
    settings_.launch.job = "of the children";
    return alone.plugin.empty() && alone.reason.find("forked from process") != std::string::npos &&
           refusal.find("MPI belongs to its parent") != std::string::npos && choose().plugin == "local";
  }

  static void expect_contains(const std::string& text, std::initializer_list<std::string> parts) {
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
  }

  static constexpr const char* kVariables[] = {
      "OMPI_COMM_WORLD_SIZE", "PMI_RANK",      "PMI_SIZE",     "PMIX_RANK",
      "SLURM_PROCID",         "SLURM_STEP_ID", "SLURM_NTASKS", "_FARANDOLE_JOINED_BY",
      "_FARANDOLE_JOINED_AS"};
  Settings settings_;
  std::filesystem::path directory_;

 private:
  std::map<std::string, std::string> before_;
};

TEST_F(BackendTest, IsAloneWithoutALauncher) {
  const BackendChoice choice = choose();
  EXPECT_EQ(choice.plugin, "");
  EXPECT_EQ(choice.launched_size, 0);
  EXPECT_NE(choice.reason, "");
}

TEST_F(BackendTest, FollowsTheLauncher) {
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  setenv("PMIX_RANK", "1", 1);
  EXPECT_EQ(choose().plugin, "mpi_openmpi");
  EXPECT_EQ(choose().launched_size, 4);
  expect_contains(choose().reason, {"OMPI_COMM_WORLD_SIZE"});
  unsetenv("OMPI_COMM_WORLD_SIZE");
  unsetenv("PMIX_RANK");

  setenv("PMI_RANK", "0", 1);
  setenv("PMI_SIZE", "3", 1);
  EXPECT_EQ(choose().plugin, "mpi_mpich");
  EXPECT_EQ(choose().launched_size, 3);
  expect_contains(choose().reason, {"PMI_RANK"});
}

TEST_F(BackendTest, IgnoresASizeThatIsNoNumber) {
  setenv("OMPI_COMM_WORLD_SIZE", "many", 1);
  EXPECT_EQ(choose().plugin, "mpi_openmpi");
  EXPECT_EQ(choose().launched_size, 0);
}

TEST_F(BackendTest, FarandoleMpiForcesAndOffStaysAlone) {
  settings_.launch.mpi = "mpich";
  EXPECT_EQ(choose().plugin, "mpi_mpich");
  expect_contains(choose().reason, {"FARANDOLE_MPI=mpich"});
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  settings_.launch.mpi = "openmpi";
  EXPECT_EQ(choose().plugin, "mpi_openmpi");
  EXPECT_EQ(choose().launched_size, 2);
  settings_.launch.mpi = "off";
  EXPECT_EQ(choose().plugin, "");
  EXPECT_EQ(choose().launched_size, 0);
}

TEST_F(BackendTest, RefusesContradictions) {
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  settings_.launch.mpi = "mpich";
  expect_contains(message_of<InvalidArgument>([&] { choose(); }),
                  {"FARANDOLE_MPI=mpich", "Open MPI", "OMPI_COMM_WORLD_SIZE"});
  unsetenv("OMPI_COMM_WORLD_SIZE");
  setenv("PMI_RANK", "2", 1);
  settings_.launch.mpi = "openmpi";
  expect_contains(message_of<InvalidArgument>([&] { choose(); }), {"FARANDOLE_MPI=openmpi", "MPICH", "PMI_RANK"});
}

TEST_F(BackendTest, SlurmDoesNotTellWhichMpi) {
  setenv("SLURM_PROCID", "0", 1);
  setenv("SLURM_NTASKS", "6", 1);
  EXPECT_EQ(choose().plugin, "") << "a batch script is no task of srun";
  setenv("SLURM_STEP_ID", "0", 1);
  settings_.launch.mpi = "mpich";
  EXPECT_EQ(choose().plugin, "mpi_mpich");
  EXPECT_EQ(choose().launched_size, 6);
  setenv("PMI_RANK", "0", 1);
  settings_.launch.mpi = "openmpi";
  EXPECT_EQ(choose().plugin, "mpi_openmpi") << "srun --mpi=pmi2 starts Open MPI too";
}

TEST_F(BackendTest, TakesTheOnlyPluginWhereTheLauncherDoesNotTell) {
  setenv("PMIX_RANK", "0", 1);
  const std::vector<std::string> beside_library = available_backends(Settings());
  if (beside_library.empty()) {
    expect_contains(message_of<Unsupported>([&] { choose(); }), {"PMIX_RANK", "no MPI plug-in"});
  } else if (beside_library.size() == 1) {
    EXPECT_EQ(choose().plugin, beside_library.front());
  }
  put_plugin("libfarandole_mpi_mpich.so");
  put_plugin("libfarandole_mpi_openmpi.so");
  EXPECT_EQ(available_backends(settings_), (std::vector<std::string>{"mpi_openmpi", "mpi_mpich"}));
  expect_contains(message_of<InvalidArgument>([&] { choose(); }), {"PMIX_RANK", "FARANDOLE_MPI=openmpi"});
}

TEST_F(BackendTest, ProgramsStartedByARankAreAlone) {
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  setenv("_FARANDOLE_JOINED_BY", std::to_string(getppid()).c_str(), 1);
  EXPECT_EQ(choose().plugin, "");
  expect_contains(choose().reason, {"inherited", std::to_string(getppid())});
  settings_.launch.mpi = "openmpi";
  EXPECT_EQ(choose().plugin, "") << "FARANDOLE_MPI is inherited as well";
  setenv("_FARANDOLE_JOINED_BY", std::to_string(getpid()).c_str(), 1);
  EXPECT_EQ(choose().plugin, "mpi_openmpi") << "this process joins again";
}

TEST_F(BackendTest, TheUserSaysWhichRankThisIs) {
  settings_.launch.rank = 1;
  expect_contains(message_of<InvalidArgument>([&] { choose(); }),
                  {"FARANDOLE_RANK is 1", "FARANDOLE_SIZE not set", "FARANDOLE_JOB not set", "mpirun"});
  settings_.launch.size = 3;
  settings_.launch.job = "mine";
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  EXPECT_EQ(choose().plugin, "local");
  EXPECT_EQ(choose().launched_size, 3);
  expect_contains(choose().reason, {"FARANDOLE_RANK is 1 of 3 in job 'mine'"});
  EXPECT_EQ(load_backend("local", settings_).name(), "local");
  settings_.launch.mpi = "openmpi";
  expect_contains(message_of<InvalidArgument>([&] { choose(); }), {"FARANDOLE_RANK is set", "FARANDOLE_MPI=openmpi"});
  settings_.launch.mpi = "off";
  EXPECT_EQ(choose().plugin, "local");
  setenv("_FARANDOLE_JOINED_BY", std::to_string(getppid()).c_str(), 1);
  EXPECT_EQ(choose().plugin, "local") << "started by a rank of another job, and told a rank of this one";
  setenv("_FARANDOLE_JOINED_AS", "1 of 3 in mine", 1);
  EXPECT_EQ(choose().plugin, "") << "a program that a rank started";
  setenv("_FARANDOLE_JOINED_AS", "0 of 3 in mine", 1);
  EXPECT_EQ(choose().plugin, "local") << "started by rank 0, and told to be rank 1";
}

TEST_F(BackendTest, RefusesACommunicatorOfNoMpi) {
  JoinOptions options;
  options.mpi_communicator = 0;
  expect_contains(message_of<InvalidArgument>([&] { choose_backend(settings_, options); }),
                  {"communicator", "MPI_Init"});
}

TEST_F(BackendTest, TellsWhereItLookedForAPlugin) {
  expect_contains(
      message_of<Unsupported>([&] { load_backend("mpi_none", settings_); }),
      {"mpi_none", "libfarandole_mpi_none.so", directory_.string(), "the loader's path", "FARANDOLE_PLUGIN_DIR"});
}

TEST_F(BackendTest, NamesTheReasonWhenAPluginCannotBeLoaded) {
  put_plugin("libfarandole_mpi_mpich.so");
  expect_contains(message_of<Unsupported>([&] { load_backend("mpi_mpich", settings_); }),
                  {"mpi_mpich", (directory_ / "libfarandole_mpi_mpich.so").string()});
}

TEST_F(BackendTest, NamesBothBuildsWhenAPluginHasOtherHeaders) {
  settings_.process.plugin_directory = FARANDOLE_REFUSING_PLUGIN_DIRECTORY;
  const std::string message = message_of<Unsupported>([&] { load_backend("mpi_mpich", settings_); });
  expect_contains(message, {"mpi_mpich", build_id(), FARANDOLE_REFUSING_PLUGIN_DIRECTORY, "build it again"});
  // Both builds have the same version and compiler: only the headers differ.
  const std::string own = build_id();
  const std::string common = own.substr(0, own.rfind('-') + 1);
  const std::size_t at = message.find("the plug-in's is " + common);
  ASSERT_NE(at, std::string::npos) << message;
  EXPECT_NE(message.substr(message.find(common, at), own.size()), own);
}

// In a process of its own, because plug-ins stay loaded.
TEST_F(BackendTest, LoadsAPluginOnceAndNotInForkedChildren) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  settings_.process.plugin_directory = FARANDOLE_ACCEPTING_PLUGIN_DIRECTORY;
  const auto check = [&] {
    std::array<Backend*, 4> loaded{};
    std::vector<std::thread> threads;
    for (Backend*& each : loaded) threads.emplace_back([&] { each = &load_backend("mpi_openmpi", settings_); });
    for (std::thread& thread : threads) thread.join();
    const bool once = std::all_of(loaded.begin(), loaded.end(), [&](Backend* each) { return each == loaded[0]; });
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    const bool joins = choose().plugin == "mpi_openmpi";
    const pid_t child = fork();
    if (child == 0) _exit(is_alone_unless_told_its_rank() ? 0 : 1);
    int status = 1;
    waitpid(child, &status, 0);
    _exit(once && loaded[0]->version() == "Fake MPI 1.0" && joins && status == 0 ? 0 : 1);
  };
  EXPECT_EXIT(check(), ExitedWithCode(0), "");
}

}  // namespace
}  // namespace farandole
