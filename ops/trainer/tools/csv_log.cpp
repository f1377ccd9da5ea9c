// SPDX-License-Identifier: Apache-2.0
#include "csv_log.h"

#include <fmt/format.h>

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

}  // namespace

CsvLog::CsvLog(std::filesystem::path file, bool append)
    : path_(std::move(file)), file_(std::fopen(path_.c_str(), append ? "ae" : "we")) {
  if (!file_) throw DataError(fmt::format("--csv {}: cannot be opened: {}", path_.string(), std::strerror(errno)));
  if (std::ftell(file_.get()) > 0) return;  // the names stand in its first row
  write(
      "epoch,training_steps,loss,accuracy,test_loss,test_accuracy,images_per_second,seconds,"
      "exposed_communication_share");
}

void CsvLog::epoch(const EpochReport& report) {
  write(fmt::format("{},{},{},{},{},{},{},{},{}", report.epoch, report.training_steps, cell(report.loss),
                    cell(report.accuracy), report.test ? cell(report.test->loss) : "",
                    report.test ? cell(report.test->accuracy) : "", report.images_per_second, report.seconds,
                    report.exposed_communication_share));
}

void CsvLog::write(const std::string& line) {
  if (std::fprintf(file_.get(), "%s\n", line.c_str()) < 0 || std::fflush(file_.get()) != 0) {
    throw DataError(fmt::format("--csv {}: cannot be written: {}", path_.string(), std::strerror(errno)));
  }
}

}  // namespace farandole::trainer
