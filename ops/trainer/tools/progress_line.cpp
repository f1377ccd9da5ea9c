// SPDX-License-Identifier: Apache-2.0
#include "progress_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <vector>

#include "terminal.h"

namespace farandole::trainer {
namespace {

constexpr auto kBetweenUpdates = std::chrono::milliseconds(100);
constexpr auto kBetweenLines = std::chrono::seconds(30);
constexpr const char* kToStartAndErase = "\r\x1b[K";
constexpr std::size_t kAnyWidth = std::numeric_limits<std::size_t>::max();

/// A duration as "3:07" or "1:02:45".
std::string duration(double seconds) {
  const std::int64_t whole = std::llround(std::max(0.0, seconds));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

/// "accuracy 85.24 %", "mean_absolute_error 0.1234"
std::string metric_text(const MetricResult& metric) {
  if (metric.name.ends_with("accuracy")) return fmt::format("{} {:.2f} %", metric.name, 100 * metric.value);
  return fmt::format("{} {:.4f}", metric.name, metric.value);
}

/// Each metric with `before` in front.
std::string metrics_text(const std::vector<MetricResult>& metrics, const char* before) {
  std::string text;
  for (const MetricResult& metric : metrics) text += before + metric_text(metric);
  return text;
}

std::string test_text(const EpochReport& report) {
  if (!report.test) return "";
  return fmt::format(", test loss {:.4f}{}", report.test->loss, metrics_text(report.test->metrics, ", test "));
}

/// ", loss scale 32768, 1 training step skipped"
std::string loss_scale_text(const EpochReport& report) {
  if (!report.loss_scale) return "";
  return fmt::format(", loss scale {}, {} training step{} skipped", *report.loss_scale, report.skipped_steps,
                     report.skipped_steps == 1 ? "" : "s");
}

std::string milliseconds(double seconds) {
  return fmt::format("{:.3g} ms", 1e3 * seconds);
}

/// "on the device, per training step (median of 40): 9.8 ms, of which input 0.1 ms, …"
std::string device_text(const EpochReport& report) {
  const DeviceTimes& times = *report.device_times;
  const bool by_graphs = times.graph_steps > 0;
  std::string text =
      fmt::format("on the device, per training step{} (median of {}): {}, of which ", by_graphs ? " by graphs" : "",
                  by_graphs ? times.graph_steps : times.steps, milliseconds(times.step()));
  if (by_graphs) {
    text += fmt::format("input {}, forward, backward and communication {}, update {}", milliseconds(times.graph_input),
                        milliseconds(times.graph_gradients), milliseconds(times.graph_update));
  } else {
    text += fmt::format("input {}, forward {}, backward {}, waiting for communication {}, update {}",
                        milliseconds(times.input), milliseconds(times.forward), milliseconds(times.backward),
                        milliseconds(times.exposed_communication), milliseconds(times.update));
  }
  if (report.peak_share) text += fmt::format("; {:.3g} % of the device's measured peak", 100 * *report.peak_share);
  return text;
}

/// The text in lines of at most `columns` characters, broken at blanks; continued lines are indented.
std::string wrapped(const std::string& text, std::size_t columns) {
  std::string lines;
  std::istringstream source(text);
  for (std::string line; std::getline(source, line);) {
    if (!lines.empty()) lines += '\n';
    std::size_t width = 0;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      const bool fits = width + 1 + word.size() <= columns;
      if (width > 0) lines += fits ? " " : "\n  ";
      width = (width == 0 ? 0 : fits ? width + 1 : 2) + word.size();
      lines += word;
    }
  }
  return lines;
}

/// Joins the parts, from the first on, until the next part does not fit into `columns` characters.
std::string joined(const std::vector<std::string>& parts, std::size_t columns) {
  std::string text = parts.front().substr(0, std::min(columns, parts.front().size()));
  for (std::size_t i = 1; i < parts.size() && text.size() + 2 + parts[i].size() <= columns; ++i)
    text += "  " + parts[i];
  return text;
}

}  // namespace

ProgressOutput standard_output() {
  return {stdout, tools::terminal_of_standard_output().value_or(-1)};
}

ProgressLine::ProgressLine(const TrainerOptions& options, bool shows_steps, ProgressOutput output)
    : output_(output),
      shows_steps_(shows_steps),
      global_batch_(options.global_batch),
      epochs_(options.epochs),
      max_steps_(options.max_steps),
      patience_(options.monitor.patience) {}

void ProgressLine::print_line(const std::string& text) {
  const std::string lines = is_moving() ? kToStartAndErase + wrapped(text, tools::columns_of(output_.terminal)) : text;
  std::fprintf(output_.file, "%s\n", lines.c_str());
  std::fflush(output_.file);
}

void ProgressLine::start(const std::string& text) {
  print_line(text);
}

void ProgressLine::table(const std::string& lines) {
  std::fputs(lines.c_str(), output_.file);
  std::fflush(output_.file);
}

std::string ProgressLine::step_text(const StepReport& report, Clock::time_point now, std::size_t columns) const {
  const double elapsed = Seconds(now - begin_).count();
  const auto done = static_cast<double>(report.training_step - first_step_);
  const std::int64_t total = epochs_ * report.steps_per_epoch;
  const std::int64_t last = max_steps_ > 0 ? std::min(max_steps_, total) : total;
  std::vector<std::string> parts{
      fmt::format("epoch {}/{} [{}/{}]", report.epoch, epochs_, report.step_of_epoch, report.steps_per_epoch),
      fmt::format("loss {:.4f}", report.epoch_loss)};
  for (const MetricResult& metric : report.metrics) parts.push_back(metric_text(metric));
  // The duration of the first step is unknown here; the first step also takes longer than later steps.
  if (done > 0 && elapsed > 0) {
    parts.push_back(duration(elapsed / done * static_cast<double>(last - report.training_step)) + " left");
    parts.push_back(fmt::format("{:.0f} images/s", done * static_cast<double>(global_batch_) / elapsed));
    parts.push_back(fmt::format("{:.0f} % waiting", 100 * exposed_ / elapsed));
  } else {
    parts.emplace_back("--:-- left");
  }
  return joined(parts, columns);
}

void ProgressLine::step(const StepReport& report, Clock::time_point now) {
  const bool is_first = first_step_ < 0;
  if (is_first) {
    first_step_ = report.training_step;
    begin_ = last_shown_ = now;
  } else {
    exposed_ += report.exposed_communication_seconds;
  }
  if (!shows_steps_) return;
  if (is_moving()) {
    if (!is_first && now - last_shown_ < kBetweenUpdates) return;
    // The last column stays empty: some terminals begin a new line when it is filled.
    const std::string text = step_text(report, now, tools::columns_of(output_.terminal) - 1);
    std::fprintf(output_.file, "%s%s", kToStartAndErase, text.c_str());
  } else {
    if (now - last_shown_ < kBetweenLines) return;
    std::fprintf(output_.file, "%s\n", step_text(report, now, kAnyWidth).c_str());
  }
  std::fflush(output_.file);
  last_shown_ = now;
}

void ProgressLine::epoch(const EpochReport& report) {
  print_line(fmt::format("epoch {}/{}: loss {:.4f}{}{}, {:.0f} images/s, {:.1f} s{}", report.epoch, epochs_,
                         report.loss, metrics_text(report.metrics, ", "), test_text(report), report.images_per_second,
                         report.seconds, loss_scale_text(report)));
}

void ProgressLine::interrupted(const EpochReport& report, const std::filesystem::path& checkpoints) {
  const std::string kept =
      checkpoints.empty() ? "" : fmt::format("; --resume goes on from the checkpoint in {}", checkpoints.string());
  print_line(fmt::format("interrupted at step {}{}", report.training_steps, kept));
}

void ProgressLine::finish(const EpochReport& report) {
  if (report.stopped_early) {
    print_line(
        fmt::format("no better result for {} epochs, so the training ends after epoch {}", patience_, report.epoch));
  }
  if (first_step_ < 0) {
    print_line(fmt::format("nothing left to train; {} to go on: {} training steps{}, checksum {:08x}",
                           report.stopped_early ? "raise --patience" : "raise --epochs or --max-steps",
                           report.training_steps, test_text(report), report.parameters_checksum.value_or(0)));
    return;
  }
  print_line(
      fmt::format("done: {} training steps{}, {:.0f} images/s, {:.1f} s, {:.1f} % of it waiting for communication, "
                  "checksum {:08x}",
                  report.training_steps, test_text(report), report.images_per_second, report.seconds,
                  100 * report.exposed_communication_share, report.parameters_checksum.value_or(0)));
  if (report.device_times) print_line(device_text(report));
}

}  // namespace farandole::trainer
