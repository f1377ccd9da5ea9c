// SPDX-License-Identifier: Apache-2.0
#include "csv_log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "farandole/core/error.h"

namespace farandole::trainer {
namespace {

std::string cell(double value) {
  return std::isnan(value) ? "" : fmt::format("{}", value);
}

/// A name may have a comma or a quote.
std::string quoted(const std::string& name) {
  if (name.find_first_of(",\"") == std::string::npos) return name;
  std::string text = "\"";
  for (const char letter : name) text += letter == '"' ? "\"\"" : std::string(1, letter);
  return text + '"';
}

}  // namespace

CsvLog::CsvLog(std::filesystem::path file, bool append)
    : path_(std::move(file)), file_(std::fopen(path_.c_str(), append ? "ae" : "we")) {
  if (!file_) throw DataError(fmt::format("--csv {}: cannot be opened: {}", path_.string(), std::strerror(errno)));
  if (std::fseek(file_.get(), 0, SEEK_END) == 0 && std::ftell(file_.get()) > 0) has_names_ = true;
}

void CsvLog::epoch(const EpochReport& report) {
  const bool repeats = last_ && last_->training_steps == report.training_steps;
  if (!repeats) {
    last_ = report;
  } else if (last_->test || !report.test || !remove_last_row()) {
    return;
  } else {
    last_->test = report.test;  // the evaluation at the end of the training
  }
  write_row(*last_);
}

bool CsvLog::remove_last_row() {
  return row_begin_ >= 0 && ::ftruncate(::fileno(file_.get()), row_begin_) == 0;
}

void CsvLog::write_row(const EpochReport& report) {
  if (!has_names_) {
    std::string names = "epoch,training_steps,loss";
    for (const MetricResult& metric : report.metrics) names += "," + quoted(metric.name);
    names += ",test_loss";
    for (const MetricResult& metric : report.metrics) names += "," + quoted("test_" + metric.name);
    write(names + ",images_per_second,seconds,exposed_communication_share");
    has_names_ = true;
  }
  row_begin_ = std::fseek(file_.get(), 0, SEEK_END) == 0 ? std::ftell(file_.get()) : -1;
  std::string row = fmt::format("{},{},{}", report.epoch, report.training_steps, cell(report.loss));
  for (const MetricResult& metric : report.metrics) row += "," + cell(metric.value);
  row += "," + (report.test ? cell(report.test->loss) : "");
  for (const MetricResult& metric : report.metrics) {
    row += "," + (report.test ? cell(report.test->metric(metric.name)) : "");
  }
  write(fmt::format("{},{},{},{}", row, report.images_per_second, report.seconds, report.exposed_communication_share));
}

void CsvLog::write(const std::string& line) {
  if (std::fprintf(file_.get(), "%s\n", line.c_str()) < 0 || std::fflush(file_.get()) != 0) {
    throw DataError(fmt::format("--csv {}: cannot be written: {}", path_.string(), std::strerror(errno)));
  }
}

}  // namespace farandole::trainer
