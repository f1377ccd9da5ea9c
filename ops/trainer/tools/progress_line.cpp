// SPDX-License-Identifier: Apache-2.0
#include "progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace farandole::trainer {
namespace {

constexpr auto kBetweenUpdates = std::chrono::milliseconds(100);

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

/// A duration as "3:07" or "1:02:45".
std::string duration(double seconds) {
  const std::int64_t whole = std::llround(std::max(0.0, seconds));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string test_text(const EpochReport& report) {
  if (!report.test) return "";
  return fmt::format(", test loss {:.4f}, test accuracy {:.2f} %", report.test->loss, 100 * report.test->accuracy);
}

/// True if standard output goes to a terminal. Under Open MPI every rank has a pseudo-terminal of its own, wherever the
/// launcher sends the rank's output, so the launcher's standard output is tested instead.
bool on_terminal() {
  if (isatty(STDOUT_FILENO) != 1) return false;
  if (std::getenv("OMPI_COMM_WORLD_RANK") == nullptr) return true;
  std::error_code unreadable;
  const auto output = std::filesystem::read_symlink(fmt::format("/proc/{}/fd/1", getppid()), unreadable).string();
  return output.starts_with("/dev/pts/") || output.starts_with("/dev/tty");
}

}  // namespace

ProgressLine::ProgressLine(std::int64_t global_batch, std::int64_t epochs, std::int64_t max_steps)
    : moving_(on_terminal()), global_batch_(global_batch), epochs_(epochs), max_steps_(max_steps) {}

void ProgressLine::start(const std::string& text) {
  print(text + "\n");
}

void ProgressLine::step(const StepReport& report) {
  const auto now = Clock::now();
  if (first_step_ < 0) {
    first_step_ = report.training_step;
    begin_ = now;
  }
  if (!moving_ || now - last_shown_ < kBetweenUpdates) return;
  last_shown_ = now;
  const double elapsed = Seconds(now - begin_).count();
  const auto done = static_cast<double>(report.training_step - first_step_);
  const std::int64_t total = epochs_ * report.steps_per_epoch;
  const std::int64_t last = max_steps_ > 0 ? std::min(max_steps_, total) : total;
  const double left = done > 0 ? elapsed / done * static_cast<double>(last - report.training_step) : 0;
  const double rate = elapsed > 0 ? done * static_cast<double>(global_batch_) / elapsed : 0;
  clear();
  print(fmt::format("epoch {}/{} [{}/{}]  loss {:.4f}  accuracy {:.2f} %  {:.0f} images/s  {} left", report.epoch,
                    epochs_, report.step_of_epoch, report.steps_per_epoch, report.epoch_loss,
                    100 * report.epoch_accuracy, rate, duration(left)));
}

void ProgressLine::epoch(const EpochReport& report) {
  if (moving_) clear();
  print(fmt::format("epoch {}/{}: loss {:.4f}, accuracy {:.2f} %{}, {:.0f} images/s, {:.1f} s\n", report.epoch, epochs_,
                    report.loss, 100 * report.accuracy, test_text(report), report.images_per_second, report.seconds));
}

void ProgressLine::finish(const EpochReport& report) {
  if (moving_) clear();
  print(
      fmt::format("done: {} training steps{}, {:.0f} images/s, {:.1f} s, {:.1f} % of it waiting for communication, "
                  "parameters {:08x}\n",
                  report.training_steps, test_text(report), report.images_per_second, report.seconds,
                  100 * report.exposed_communication_share, report.parameters_checksum));
}

void ProgressLine::clear() {
  constexpr const char* kToStartAndErase = "\r\x1b[K";
  print(kToStartAndErase);
}

}  // namespace farandole::trainer
