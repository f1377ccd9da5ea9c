// SPDX-License-Identifier: Apache-2.0
#include "error_report.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "farandole/core/error.h"

namespace farandole::tools {
namespace {

std::string own_words(const std::exception& error, std::optional<int>) {
  return error.what();
}

/// Until all are here, or one of them fails, which then has printed why.
void wait_for_others(Communicator& ranks) {
  try {
    ranks.barrier();
  } catch (const Error&) {
  }
}

}  // namespace

ErrorReport::ErrorReport(std::string program, Describe describe)
    : program_(std::move(program)), describe_(describe ? std::move(describe) : own_words) {}

void ErrorReport::print(std::string_view text) {
  // While it is printed, too: a thread that went on would let other ranks know that this one fails.
  const std::lock_guard lock(mutex_);
  if (std::exchange(has_printed_, true)) return;
  // In one piece, so that the lines of several ranks do not mix. Nothing can be said where it can not be printed.
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
