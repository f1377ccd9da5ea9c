// SPDX-License-Identifier: Apache-2.0
// The trainer's use of OpenMP: the program's number of threads is restored after each call.
#include <gtest/gtest.h>
#include <omp.h>

#include <stdexcept>
#include <utility>

#include "process_threads.h"
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
    const long takers = test::threads().takers_of_sigterm;
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
    EXPECT_EQ(test::threads().takers_of_sigterm, takers) << "kernel threads leave signals to the program";
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
