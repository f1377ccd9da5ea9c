// SPDX-License-Identifier: Apache-2.0
// The trainer's use of OpenMP: the program's number of threads is restored after each call.
#include <gtest/gtest.h>
#include <omp.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "small_training.h"

namespace farandole::trainer {
namespace {

using test::Data;
using test::kImage;
using test::mlp;
using test::options_for;

constexpr int kOfTheProgram = 3, kOfTheTrainer = 5;

TrainerOptions with_threads() {
  TrainerOptions options = options_for(2);
  options.kernel_threads = kOfTheTrainer;
  return options;
}

/// Threads of this process that SIGTERM may be handed to.
long takers_of_sigterm() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::count_if(begin(tasks), end(tasks), [](const std::filesystem::directory_entry& task) {
    std::ifstream status(task.path() / "status");
    unsigned long blocked = ~0UL;  // of one that has ended
    for (std::string word; status >> word;) {
      if (word == "SigBlk:") status >> std::hex >> blocked;
    }
    return (blocked >> (SIGTERM - 1) & 1) == 0;
  });
}

TEST(KernelThreads, TheProgramHasItsNumberAfterEachCall) {
  run_replicas(1, [](Communicator& replica) {
    omp_set_num_threads(kOfTheProgram);
    omp_set_dynamic(1);  // as OMP_DYNAMIC=true, with which oneDNN may wait for threads that OpenMP has not started
    int within = 0, dynamic_within = -1;
    TrainerOptions options = with_threads();
    options.on_step = [&](const StepReport&) {
      within = omp_get_max_threads();
      dynamic_within = omp_get_dynamic();
    };
    const Data data;
    const long takers = takers_of_sigterm();
    Trainer<double> trainer(replica, Model<double>(kImage, mlp<double>()), data.training, data.test, options);
    EXPECT_EQ(omp_get_max_threads(), kOfTheProgram) << "after the constructor";
    trainer.fit();
    EXPECT_EQ(omp_get_max_threads(), kOfTheProgram) << "after fit";
    EXPECT_EQ(within, kOfTheTrainer);
    EXPECT_EQ(dynamic_within, 0);
    EXPECT_NE(omp_get_dynamic(), 0) << "after fit";
    omp_set_dynamic(0);
    trainer.evaluate(*data.test);
    EXPECT_EQ(omp_get_max_threads(), kOfTheProgram) << "after evaluate";
    EXPECT_EQ(takers_of_sigterm(), takers) << "kernel threads leave signals to the program";
  });
}

TEST(KernelThreads, TheProgramHasItsNumberAfterAnException) {
  run_replicas(1, [](Communicator& replica) {
    omp_set_num_threads(kOfTheProgram);
    TrainerOptions options = with_threads();
    options.on_step = [](const StepReport&) { throw std::runtime_error("of the program's"); };
    const Data data;
    Trainer<double> trainer(replica, Model<double>(kImage, mlp<double>()), data.training, data.test, options);
    EXPECT_THROW(trainer.fit(), std::runtime_error);
    EXPECT_EQ(omp_get_max_threads(), kOfTheProgram);
  });
}

}  // namespace
}  // namespace farandole::trainer
