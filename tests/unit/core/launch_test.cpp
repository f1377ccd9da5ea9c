// SPDX-License-Identifier: Apache-2.0
// Detection of how a process was started, from its environment variables.
#include "launch/launch.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "farandole/core/error.h"
#include "message_of.h"

namespace farandole {
namespace {

using test::message_of;
using testing::AllOf;
using testing::HasSubstr;
using Environment = std::map<std::string, std::string>;
using Way = Launch::Way;

constexpr pid_t kOwn = 100;

Settings settings_of(const Environment& environment) {
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) {
    if (name.rfind("FARANDOLE_", 0) == 0) variables.push_back(fmt::format("{}={}", name, value));
  }
  return Settings::parse(variables);
}

Launch launch(const Environment& environment, LaunchFacts facts = {kOwn, false, false}) {
  const auto read = [&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  };
  return find_launch(settings_of(environment), read, facts);
}

Environment torch(const std::string& rank = "1", const std::string& size = "4") {
  return {{"RANK", rank}, {"WORLD_SIZE", size}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};
}

Environment open_mpi(const std::string& rank = "1", const std::string& size = "4") {
  return {{"OMPI_COMM_WORLD_RANK", rank}, {"OMPI_COMM_WORLD_SIZE", size}, {"PMIX_RANK", rank}};
}

Environment slurm(const std::string& rank = "1", const std::string& size = "4") {
  return {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", rank}, {"SLURM_NTASKS", size}};
}

Environment operator+(Environment one, const Environment& other) {
  for (const auto& [name, value] : other) one[name] = value;
  return one;
}

const Environment kOneTask{{"SLURM_STEP_NUM_TASKS", "1"}};

struct Case {
  std::string what;
  Environment environment;
  Way way;
  std::string text;  // of what the process was launched as
};

const Environment kTold{{"FARANDOLE_RANK", "2"}, {"FARANDOLE_SIZE", "3"}};
const Environment kElastic{{"TORCHELASTIC_RUN_ID", "none"}};
const Environment kPmix{{"FARANDOLE_MPI", "pmix"}, {"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "job7"}};
const Environment kNoMpi{{"FARANDOLE_MPI", "off"}};

Environment inherited(const std::string& as) {
  return {{"_FARANDOLE_JOINED_BY", "99"}, {"_FARANDOLE_JOINED_AS", as}};
}

std::vector<Case> cases() {
  const Environment told_tcp = kTold + Environment{{"FARANDOLE_RENDEZVOUS", "a:1"}};
  const Environment told_local = kTold + Environment{{"FARANDOLE_JOB", "j"}};
  return {
      {"nothing", {}, Way::kNone, ""},
      {"told, several hosts", told_tcp, Way::kTcp, "2 of 3 at a:1"},
      {"told, with a name", told_tcp + Environment{{"FARANDOLE_JOB", "j"}}, Way::kTcp, "2 of 3 at a:1"},
      {"told, one host", told_local, Way::kLocal, "2 of 3 in j"},
      {"told, whatever has started it", told_tcp + open_mpi() + torch(), Way::kTcp, "2 of 3 at a:1"},
      {"told, and no MPI", told_local + kNoMpi, Way::kLocal, "2 of 3 in j"},
      {"mpirun", open_mpi(), Way::kMpi, ""},
      {"mpiexec", {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, Way::kMpi, ""},
      {"srun", slurm(), Way::kMpi, ""},
      {"a step of one task", slurm("0", "4") + kOneTask, Way::kNone, ""},
      {"a step of one task with PMIx", slurm("0", "4") + kOneTask + Environment{{"PMIX_RANK", "0"}}, Way::kNone, ""},
      {"mpirun in a step of one task", slurm("0", "4") + kOneTask + open_mpi(), Way::kMpi, ""},
      {"mpiexec in a step of one task", slurm("0", "4") + kOneTask + Environment{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}},
       Way::kMpi, ""},
      {"prterun in a step of one task",
       slurm("0", "4") + kOneTask + Environment{{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "prterun-n1-7@1"}}, Way::kMpi,
       ""},
      {"torchrun in a step of one task", torch() + slurm("0", "4") + kOneTask, Way::kTcp, "1 of 4 at node1:29500"},
      {"a batch script", {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}, Way::kNone, ""},
      {"FARANDOLE_MPI", {{"FARANDOLE_MPI", "openmpi"}}, Way::kMpi, ""},
      {"PMIx is asked for", kPmix, Way::kPmix, "1 in job7 by PMIx"},
      {"PMIx is asked for, and torch's are there", kPmix + torch(), Way::kPmix, "1 in job7 by PMIx"},
      {"PMIx is asked for, whatever has started it", {{"FARANDOLE_MPI", "pmix"}}, Way::kPmix, " in  by PMIx"},
      {"a child of one that joined by PMIx", kPmix + inherited("1 in job7 by PMIx"), Way::kNone, ""},
      {"mpirun, and no MPI", open_mpi() + kNoMpi, Way::kNone, ""},
      {"torchrun", torch(), Way::kTcp, "1 of 4 at node1:29500"},
      {"torchrun by IPv6", torch() + Environment{{"MASTER_ADDR", "fd00::1"}}, Way::kTcp, "1 of 4 at [fd00::1]:29500"},
      {"torchrun, with a name", torch() + Environment{{"FARANDOLE_JOB", "j"}}, Way::kTcp, "1 of 4 at node1:29500"},
      {"torchrun, and no MPI", torch() + kNoMpi, Way::kTcp, "1 of 4 at node1:29500"},
      {"mpirun that says the same", torch() + open_mpi(), Way::kMpi, "1 of 4 at node1:29500"},
      {"srun that says the same", torch() + slurm(), Way::kMpi, "1 of 4 at node1:29500"},
      {"mpirun, and no MPI, but torch", torch() + open_mpi("0", "2") + kNoMpi, Way::kTcp, "1 of 4 at node1:29500"},
      {"mpirun, and MPI is asked for", torch() + open_mpi("0", "2") + Environment{{"FARANDOLE_MPI", "openmpi"}},
       Way::kMpi, "1 of 4 at node1:29500"},
      {"torchrun on each node by srun", torch() + slurm("0", "2") + kElastic, Way::kTcp, "1 of 4 at node1:29500"},
      {"the same with PMI", torch() + slurm("0", "2") + kElastic + Environment{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}},
       Way::kTcp, "1 of 4 at node1:29500"},
      {"the same with PMIx", torch() + slurm("0", "2") + kElastic + Environment{{"PMIX_RANK", "0"}}, Way::kTcp,
       "1 of 4 at node1:29500"},
      {"RANK alone", {{"RANK", "general"}}, Way::kNone, ""},
      {"empty ones", torch() + Environment{{"MASTER_PORT", ""}}, Way::kNone, ""},
      {"only PET_*", {{"PET_NNODES", "2"}, {"PET_MASTER_ADDR", "node1"}}, Way::kNone, ""},
      {"a child of a rank of torchrun's", torch() + inherited("1 of 4 at node1:29500"), Way::kNone, ""},
      {"a child that torchrun started again", torch("0", "2") + inherited("1 of 4 at node1:29500"), Way::kTcp,
       "0 of 2 at node1:29500"},
      {"a child of a rank of mpirun's", open_mpi() + inherited(""), Way::kNone, ""},
      {"a child of one that both started", torch() + open_mpi() + inherited("1 of 4 at node1:29500"), Way::kNone, ""},
      {"torchrun started by a rank of mpirun's", torch() + open_mpi("0", "2") + inherited(""), Way::kTcp,
       "1 of 4 at node1:29500"},
      {"a child of a rank that was told", told_tcp + torch() + inherited("2 of 3 at a:1"), Way::kNone, ""},
      {"a child that was told another rank", told_tcp + inherited("0 of 3 at a:1"), Way::kTcp, "2 of 3 at a:1"},
      {"FARANDOLE_MPI is inherited as well", open_mpi() + inherited("") + Environment{{"FARANDOLE_MPI", "openmpi"}},
       Way::kNone, ""},
      {"this process joins again", torch() + Environment{{"_FARANDOLE_JOINED_BY", "100"}}, Way::kTcp,
       "1 of 4 at node1:29500"},
  };
}

TEST(Launch, FollowsTheTableOfEnvironments) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.what);
    const Launch found = launch(each.environment);
    EXPECT_EQ(found.way, each.way);
    EXPECT_EQ(found.launched.text, each.text);
    // For MPI the evidence serves as the reason.
    if (each.way != Way::kMpi) {
      EXPECT_FALSE(found.reason.empty());
    }
  }
}

TEST(Launch, AStepOfSlurmHasItsOwnNumberOfTasks) {
  EXPECT_EQ(launch(slurm("1", "8") + Environment{{"SLURM_STEP_NUM_TASKS", "2"}}).mpi.size, 2);
  EXPECT_EQ(launch(slurm("1", "8")).mpi.size, 8);
  EXPECT_THAT(launch(slurm("0", "8") + kOneTask).reason, HasSubstr("a step of Slurm with one task"));
}

TEST(Launch, SaysWhereTheLauncherIsAnotherMpis) {
  const auto say = [](const Environment& environment, std::string_view library) {
    const auto read = [&](const char* name) -> const char* {
      const auto found = environment.find(name);
      return found == environment.end() ? nullptr : found->second.c_str();
    };
    return describe_foreign_launcher(read, library);
  };
  const Environment hydra{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}};
  const Environment intel = hydra + Environment{{"I_MPI_HYDRA_TOPOLIB", "hwloc"}};
  const Environment newer = open_mpi() + Environment{{"OMPI_VERSION", "5.0.11"}};
  const Environment older = open_mpi() + Environment{{"OMPI_MCA_orte_ess_num_procs", "4"}};
  EXPECT_THAT(say(intel, "MPICH 4.0.2"),
              AllOf(HasSubstr("launcher of Intel MPI has started"), HasSubstr("use MPICH 4.0.2")));
  EXPECT_THAT(say(newer, "Open MPI 4.1.4"), AllOf(HasSubstr("Open MPI 5.0.11"), HasSubstr("use Open MPI 4.1.4")));
  EXPECT_THAT(say(older, "Open MPI 5.0.11"), HasSubstr("an older Open MPI"));
  EXPECT_EQ(say(hydra, "MPICH 4.0.2"), "");
  EXPECT_EQ(say(intel, "Intel(R) MPI Library 2021.19"), "");
  EXPECT_EQ(say(newer, "Open MPI 5.0.11"), "");
  EXPECT_EQ(say(newer, "Open MPI 5.0.2"), "") << "a patch changes nothing between them";
  EXPECT_NE(say(newer, "Open MPI 5.1.0"), "");
  EXPECT_EQ(say(older, "Open MPI 4.1.4"), "");
  EXPECT_EQ(say({}, "MPICH 4.0.2"), "") << "the program has called MPI_Init by itself";
}

TEST(Launch, SaysWhereAndWhich) {
  const Launch found = launch(torch());
  EXPECT_EQ(found.launched.process, 1);
  EXPECT_EQ(found.launched.processes, 4);
  EXPECT_EQ(found.launched.rendezvous, "node1:29500");
  EXPECT_THAT(found.reason, AllOf(HasSubstr("RANK is 1 of 4"), HasSubstr("node1:29500")));
}

TEST(Launch, ShowsBothWhereLaunchersContradictEachOther) {
  for (const Environment& mpi :
       {open_mpi("1", "2"), open_mpi("0", "4"), slurm("3", "4"), Environment{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}}) {
    EXPECT_THAT(message_of<InvalidArgument>([&] { launch(torch() + mpi); }),
                AllOf(HasSubstr("RANK=1, WORLD_SIZE=4, MASTER_ADDR=node1 and MASTER_PORT=29500"),
                      HasSubstr("this is rank"), HasSubstr("FARANDOLE_MPI=off")));
  }
  EXPECT_THAT(launch(torch() + open_mpi()).reason, HasSubstr("RANK and WORLD_SIZE agree"));
}

TEST(Launch, NamesMissingVariables) {
  EXPECT_THAT(message_of<InvalidArgument>([] { launch(kTold); }),
              AllOf(HasSubstr("FARANDOLE_RANK is 2"), HasSubstr("FARANDOLE_SIZE 3"),
                    HasSubstr("FARANDOLE_RENDEZVOUS not set"), HasSubstr("FARANDOLE_JOB not set")));
  EXPECT_THAT(message_of<InvalidArgument>([] {
                launch({{"FARANDOLE_RENDEZVOUS", "a:1"}});
              }),
              AllOf(HasSubstr("FARANDOLE_RANK is not set"), HasSubstr("FARANDOLE_RENDEZVOUS 'a:1'")));
  EXPECT_THAT(launch({{"RANK", "1"}, {"WORLD_SIZE", "2"}}).reason,
              HasSubstr("without MASTER_ADDR and MASTER_PORT no job is made of RANK and WORLD_SIZE"));
  EXPECT_THAT(launch({{"MASTER_ADDR", "node1"}}).reason, testing::Not(HasSubstr("MASTER_ADDR")));
}

/// Each of the processes would train alone.
TEST(Launch, WarnsWhereSomeOfTorchsVariablesAreMissing) {
  EXPECT_THAT(launch({{"RANK", "1"}, {"WORLD_SIZE", "2"}}).doubt,
              AllOf(HasSubstr("WORLD_SIZE is 2"), HasSubstr("MASTER_ADDR and MASTER_PORT are not set")));
  EXPECT_THAT(launch(torch() + Environment{{"MASTER_PORT", ""}}).doubt, HasSubstr("MASTER_PORT is not set or empty"));
  for (const Environment& plain :
       {Environment{}, torch(), Environment{{"RANK", "0"}, {"WORLD_SIZE", "1"}}, Environment{{"WORLD_SIZE", "2"}},
        Environment{{"RANK", "1"}, {"WORLD_SIZE", "2"}} + inherited(""),
        Environment{{"RANK", "1"}, {"WORLD_SIZE", "2"}} + open_mpi("1", "2")}) {
    EXPECT_EQ(launch(plain).doubt, "");
  }
}

TEST(Launch, RefusesNumbersThatAreNone) {
  for (const Environment& wrong : {torch("4", "4"), torch("-1", "4"), torch("x", "4"), torch("0", "0"),
                                   torch() + Environment{{"MASTER_PORT", "65536"}}}) {
    EXPECT_THAT(message_of<InvalidArgument>([&] { launch(wrong); }), HasSubstr("RANK must be a number from 0"));
  }
}

TEST(Launch, RefusesAMasterWithAPort) {
  for (const char* wrong : {"node1:29500", "10.0.0.1:29500", "tcp://node1"}) {
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  launch(torch() + Environment{{"MASTER_ADDR", wrong}});
                }),
                AllOf(HasSubstr(fmt::format("MASTER_ADDR={} ", wrong)), HasSubstr("without a port")));
  }
}

TEST(Launch, AnInitialisedMpiIsJoined) {
  const LaunchFacts running{kOwn, true, false};
  EXPECT_EQ(launch({}, running).way, Way::kMpi);
  EXPECT_EQ(launch(kNoMpi, running).way, Way::kNone);
  EXPECT_EQ(launch(torch() + kNoMpi, running).way, Way::kTcp);
  // By torchrun, with an MPI that nothing has started: the sizes will not agree, and the user must say what is meant.
  EXPECT_EQ(launch(torch(), running).way, Way::kMpi);
  EXPECT_EQ(launch(torch(), running).mpi.size, 4);
  EXPECT_EQ(launch(torch(), {kOwn, true, true}).mpi.size, 0) << "a communicator has a size of its own";
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                launch(kTold + Environment{{"FARANDOLE_JOB", "j"}}, {kOwn, true, true});
              }),
              AllOf(HasSubstr("FARANDOLE_RANK is set"), HasSubstr("an MPI communicator was passed")));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                launch(kTold + Environment{{"FARANDOLE_RENDEZVOUS", "a:1"}, {"FARANDOLE_MPI", "mpich"}});
              }),
              HasSubstr("FARANDOLE_MPI=mpich"));
}

TEST(Launch, PmixIsForProgramsWithoutMpi) {
  EXPECT_THAT(message_of<InvalidArgument>([] {
                launch(kPmix, {kOwn, true, false});
              }),
              AllOf(HasSubstr("FARANDOLE_MPI=pmix"), HasSubstr("has initialised an MPI")));
  EXPECT_THAT(message_of<InvalidArgument>([] {
                launch(kPmix, {kOwn, false, true});
              }),
              HasSubstr("an MPI communicator was passed"));
  EXPECT_THAT(message_of<InvalidArgument>([] {
                launch(kPmix + kTold + Environment{{"FARANDOLE_JOB", "j"}});
              }),
              AllOf(HasSubstr("FARANDOLE_RANK is set"), HasSubstr("FARANDOLE_MPI=pmix")));
}

}  // namespace
}  // namespace farandole
