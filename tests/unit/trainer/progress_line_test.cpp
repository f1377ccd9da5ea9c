// SPDX-License-Identifier: Apache-2.0
#include "progress_line.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>

namespace farandole::trainer {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

TrainerOptions two_epochs() {
  TrainerOptions options;
  options.global_batch = 100;
  options.epochs = 2;
  return options;
}

StepReport step_of(std::int64_t number) {
  return {.training_step = number,
          .epoch = 1,
          .step_of_epoch = number,
          .steps_per_epoch = 1000,
          .loss = 1,
          .epoch_loss = 1.25,
          .metrics = {{"accuracy", 0.5}, {"mean_squared_error", 0.125}}};
}

EpochReport report_after(std::int64_t steps) {
  EpochReport report;
  report.training_steps = steps;
  report.parameters_checksum = 0xabc;
  return report;
}

/// A file in memory, and a pseudo-terminal of a chosen width.
class ProgressLineTest : public testing::Test {
 protected:
  ~ProgressLineTest() override {
    std::fclose(file_);
    std::free(text_);
    if (terminal_ >= 0) close(terminal_);
  }
  ProgressOutput file() { return {file_, -1}; }
  ProgressOutput terminal(unsigned short columns) {
    if (terminal_ < 0) terminal_ = posix_openpt(O_RDWR | O_NOCTTY);
    winsize size{};
    size.ws_row = 24;
    size.ws_col = columns;
    EXPECT_EQ(ioctl(terminal_, TIOCSWINSZ, &size), 0);
    return {file_, terminal_};
  }
  /// What was printed since the last call.
  std::string printed() {
    std::fflush(file_);
    std::string now(text_, size_);
    std::rewind(file_);
    return now;
  }

  const Clock::time_point start_ = Clock::now();

 private:
  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* file_ = open_memstream(&text_, &size_);
  int terminal_ = -1;
};

TEST_F(ProgressLineTest, FirstStepHasNoRateAndNoTime) {
  ProgressLine progress(two_epochs(), true, terminal(130));
  progress.step(step_of(1), start_);
  EXPECT_EQ(printed(),
            "\r\x1b[Kepoch 1/2 [1/1000]  loss 1.2500  accuracy 50.00 %  mean_squared_error 0.1250  --:-- left");
  progress.step(step_of(2), start_ + seconds(1));
  EXPECT_EQ(printed(),
            "\r\x1b[Kepoch 1/2 [2/1000]  loss 1.2500  accuracy 50.00 %  mean_squared_error 0.1250  33:18 left  "
            "100 images/s  0 % waiting");
}

TEST_F(ProgressLineTest, LeavesOutWhatANarrowTerminalHasNoRoomFor) {
  for (const unsigned short columns : {100, 80, 60, 40, 20, 10}) {
    ProgressLine progress(two_epochs(), true, terminal(columns));
    progress.step(step_of(1), start_);
    (void)printed();
    progress.step(step_of(2), start_ + seconds(1));
    const std::string text = printed();
    EXPECT_LT(text.size() - std::string("\r\x1b[K").size(), columns) << text;
    EXPECT_THAT(text, HasSubstr("epoch 1/2"));
  }
}

TEST_F(ProgressLineTest, WrapsWholeLinesToTheTerminal) {
  ProgressLine progress(two_epochs(), true, terminal(30));
  progress.start("model cnn, 1000 parameters in f32, 2 replicas");
  EXPECT_EQ(printed(), "\r\x1b[Kmodel cnn, 1000 parameters in\n  f32, 2 replicas\n");
}

TEST_F(ProgressLineTest, TerminalIsUpdatedTenTimesASecond) {
  ProgressLine progress(two_epochs(), true, terminal(80));
  progress.step(step_of(1), start_);
  (void)printed();
  progress.step(step_of(2), start_ + milliseconds(99));
  EXPECT_EQ(printed(), "");
  progress.step(step_of(3), start_ + milliseconds(100));
  EXPECT_THAT(printed(), HasSubstr("[3/1000]"));
}

TEST_F(ProgressLineTest, FileGetsALineEvery30Seconds) {
  ProgressLine progress(two_epochs(), true, file());
  progress.step(step_of(1), start_);
  progress.step(step_of(2), start_ + milliseconds(29'999));
  EXPECT_EQ(printed(), "");
  progress.step(step_of(31), start_ + seconds(30));
  EXPECT_EQ(printed(),
            "epoch 1/2 [31/1000]  loss 1.2500  accuracy 50.00 %  mean_squared_error 0.1250  32:49 left  100 images/s  "
            "0 % waiting\n");
  progress.step(step_of(32), start_ + seconds(59));
  EXPECT_EQ(printed(), "");
  progress.step(step_of(33), start_ + seconds(60));
  EXPECT_THAT(printed(), HasSubstr("[33/1000]"));
}

TEST_F(ProgressLineTest, NoStepsWhereTheyAreNotWanted) {
  ProgressLine progress(two_epochs(), false, terminal(80));
  progress.step(step_of(1), start_);
  progress.step(step_of(2), start_ + seconds(100));
  EXPECT_EQ(printed(), "");
}

TEST_F(ProgressLineTest, InterruptionNamesStepAndCheckpoint) {
  ProgressLine progress(two_epochs(), true, file());
  progress.interrupted(report_after(7), "");
  EXPECT_EQ(printed(), "interrupted at step 7\n");
  progress.interrupted(report_after(8), "run1");
  EXPECT_THAT(printed(), HasSubstr("interrupted at step 8; --resume goes on from the checkpoint in run1\n"));
}

TEST_F(ProgressLineTest, LastLineHasTheChecksum) {
  ProgressLine progress(two_epochs(), true, file());
  progress.step(step_of(9), start_);
  printed();
  progress.finish(report_after(9));
  EXPECT_THAT(printed(), testing::AllOf(StartsWith("done: 9 training steps"), EndsWith(", checksum 00000abc\n")));
}

TEST_F(ProgressLineTest, TheEndSaysWhereTheTimeOfADeviceWent) {
  ProgressLine progress(two_epochs(), false, file());
  progress.step(step_of(1));
  EpochReport report = report_after(9);
  report.device_times = {.steps = 8,
                         .input = 0.001,
                         .forward = 0.002,
                         .backward = 0.004,
                         .exposed_communication = 0.00051,
                         .update = 0.0005};
  report.peak_share = 0.4123;
  progress.finish(report);
  EXPECT_THAT(printed(), EndsWith("\non the device, per training step (median of 8): 8.01 ms, of which input 1 ms, "
                                  "forward 2 ms, backward 4 ms, waiting for communication 0.51 ms, update 0.5 ms; "
                                  "41.2 % of the device's measured peak\n"));
  report.device_times = {.steps = 1, .graph_steps = 7, .graph_input = 1, .graph_gradients = 0.01, .graph_update = 0.02};
  report.peak_share.reset();
  progress.finish(report);
  EXPECT_THAT(printed(), EndsWith("per training step by graphs (median of 7): 1.03e+03 ms, of which input 1e+03 ms, "
                                  "forward, backward and communication 10 ms, update 20 ms\n"));
}

TEST_F(ProgressLineTest, LastLineWithoutStepsSaysNothingWasLeft) {
  ProgressLine progress(two_epochs(), true, file());
  progress.finish(report_after(9));
  EXPECT_THAT(
      printed(),
      testing::AllOf(StartsWith("nothing left to train; raise --epochs or --max-steps to go on: 9 training steps"),
                     testing::Not(HasSubstr("images/s")), EndsWith(", checksum 00000abc\n")));
}

}  // namespace
}  // namespace farandole::trainer
