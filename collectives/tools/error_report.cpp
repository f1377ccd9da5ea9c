// SPDX-License-Identifier: Apache-2.0
#include "error_report.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "farandole/core/error.h"

namespace farandole::tools {
namespace {

std::string text_of(const std::exception& error, std::optional<int>) {
  return error.what();
}

/// Returns when all ranks have arrived here, or when a rank has failed and printed the reason.
void wait_for_others(Communicator& ranks) {
  try {
    ranks.barrier();
  } catch (const Error&) {
  }
}

}  // namespace

ErrorReport::ErrorReport(std::string program, Describe describe)
    : program_(std::move(program)), describe_(describe ? std::move(describe) : text_of) {}

void ErrorReport::print(std::string_view text) {
  // Locked while the text is printed: a thread that returned before could tell other ranks of the failure too early.
  const std::lock_guard lock(mutex_);
  if (std::exchange(has_printed_, true)) return;
  // Written by one call, so that the lines of several ranks do not mix. A failure to print cannot be reported.
  const std::string line = fmt::format("{}: {}\n", program_, text);
  (void)std::fwrite(line.data(), 1, line.size(), stderr);
}

void ErrorReport::print_errors_of(Communicator& ranks, const std::function<void()>& part) {
  try {
    part();
  } catch (const std::exception& error) {
    print(describe_(error, ranks.rank()));
    if (dynamic_cast<const Mismatch*>(&error) != nullptr) wait_for_others(ranks);
    throw;
  }
}

void ErrorReport::print_of_all(Communicator& ranks, int origin, std::string_view text) {
  if (ranks.rank() == origin) print(text);
  try {
    ranks.barrier();
  } catch (const Error&) {
    print(text);
    throw;
  }
}

int ErrorReport::exit_status(const std::function<int()>& body) {
  try {
    return print_errors_of(body);
  } catch (const InvalidArgument&) {
    return kExitUsage;
  } catch (const std::exception&) {
    return kExitError;
  }
}

}  // namespace farandole::tools
