// SPDX-License-Identifier: Apache-2.0
#include "csv_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdio>
#include <iomanip>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace farandole::trainer {
namespace {

std::string cell(double value) {
  return std::isnan(value) ? "" : fmt::format("{}", value);
}

/// A name may have a comma or a quote.
std::string quoted(const std::string& name) {
  if (name.find_first_of(",\"") == std::string::npos) return name;
  std::ostringstream text;
  text << std::quoted(name, '"', '"');
  return text.str();
}

/// Seconds of a training step on the device; a graph's phases are not known apart.
std::string device_cells(const EpochReport& report) {
  if (!report.device_times) return ",,,,,,";
  const DeviceTimes& times = *report.device_times;
  std::string cells = fmt::format("{},", times.step());
  if (times.graph_steps > 0) {
    cells += fmt::format("{},,,,{}", times.graph_input, times.graph_update);
  } else {
    cells += fmt::format("{},{},{},{},{}", times.input, times.forward, times.backward, times.exposed_communication,
                         times.update);
  }
  return cells + "," + (report.peak_share ? cell(*report.peak_share) : "");
}

std::string loss_scale_cells(const EpochReport& report) {
  return report.loss_scale ? fmt::format("{},{}", report.skipped_steps, *report.loss_scale) : ",";
}

}  // namespace

CsvLog::CsvLog(std::filesystem::path file) : file_("--csv", std::move(file)) {}

void CsvLog::begin(std::int64_t training_steps) {
  file_.drop_from([training_steps](const std::string& row) {
    long long epoch = 0, steps = 0;
    return training_steps == 0 ||
           (std::sscanf(row.c_str(), "%lld,%lld", &epoch, &steps) == 2 && steps > training_steps);
  });
  has_names_ = file_.end() > 0;
}

void CsvLog::epoch(const EpochReport& report) {
  const bool repeats = last_ && last_->training_steps == report.training_steps;
  if (!repeats) {
    last_ = report;
  } else if (last_->test || !report.test || !file_.cut_at(row_begin_)) {
    return;
  } else {
    last_->test = report.test;  // the evaluation at the end of the training
  }
  write_row(*last_);
}

void CsvLog::write_row(const EpochReport& report) {
  if (!has_names_) {
    std::string names = "epoch,training_steps,loss";
    for (const MetricResult& metric : report.metrics) names += "," + quoted(metric.name);
    names += ",test_loss";
    for (const MetricResult& metric : report.metrics) names += "," + quoted("test_" + metric.name);
    file_.write(
        names +
        ",images_per_second,seconds,exposed_communication_share,device_step,device_input,device_forward,"
        "device_backward,device_exposed_communication,device_update,peak_share,skipped_steps,loss_scale,learning_rate");
    has_names_ = true;
  }
  row_begin_ = file_.end();
  std::vector<std::string> row{std::to_string(report.epoch), std::to_string(report.training_steps), cell(report.loss)};
  for (const MetricResult& metric : report.metrics) row.push_back(cell(metric.value));
  row.push_back(report.test ? cell(report.test->loss) : "");
  for (const MetricResult& metric : report.metrics) {
    row.push_back(report.test ? cell(report.test->metric(metric.name)) : "");
  }
  file_.write(fmt::format("{},{},{},{},{},{},{}", fmt::join(row, ","), report.images_per_second, report.seconds,
                          report.exposed_communication_share, device_cells(report), loss_scale_cells(report),
                          report.learning_rate));
}

}  // namespace farandole::trainer
