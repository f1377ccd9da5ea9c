// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/error_report.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "farandole/collectives/agreement.h"
#include "farandole/internal/error_classes.h"

namespace farandole {
namespace {

constexpr std::chrono::seconds kLauncherNeeds{3};

/// The rank in the environment variables of the launcher; empty if no launcher started this process.
std::string launched_rank() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "FARANDOLE_RANK", "RANK"}) {
    if (const char* value = std::getenv(variable)) return value;
  }
  return "";
}

/// "rank 1: ", or empty.
std::string prefix_of(const std::string& rank) {
  return rank.empty() ? "" : fmt::format("rank {}: ", rank);
}

int status_of(const std::exception& error) {
  return dynamic_cast<const InvalidArgument*>(&error) != nullptr ? kExitUsage : kExitError;
}

std::optional<int> rank_in(const Communicator& ranks) {
  return ranks.size() > 1 ? std::optional(ranks.rank()) : std::nullopt;
}

}  // namespace

ErrorReport::ErrorReport(std::string program) : program_(std::move(program)) {}

void ErrorReport::wait_for_end_by_launcher() {
  const std::string rank = launched_rank();
  if (!rank.empty() && rank != "0") std::this_thread::sleep_for(kLauncherNeeds);
}

void ErrorReport::print_line(std::string_view text) {
  // Hold the lock while printing: a second thread that returned earlier could let other ranks learn of the failure
  // before the text is out.
  const std::lock_guard lock(mutex_);
  if (std::exchange(has_printed_, true)) return;
  // Write with one call, so that the lines of several ranks do not mix. A failure to print cannot be reported.
  const std::string line = fmt::format("{}: {}\n", program_, text);
  (void)std::fwrite(line.data(), 1, line.size(), stderr);
}

void ErrorReport::print(const std::exception& error, std::optional<int> rank) {
  const std::string number = rank ? std::to_string(*rank) : launched_rank();
  print_line(fmt::format("{}: {}{}", name(kind_of(error)), prefix_of(number), message_of(error)));
}

int ErrorReport::print_errors_of(Communicator& ranks, const std::function<void()>& part) {
  try {
    part();
    return kExitDone;
  } catch (const std::exception& error) {
    if (const auto* const of_all = dynamic_cast<const RaisedByAll*>(&error)) {
      print_of_all(ranks, of_all->origin(), error);
      return status_of(error);
    }
    if (const auto* const mismatch = dynamic_cast<const Mismatch*>(&error)) {
      print_mismatch(ranks, *mismatch);
    } else {
      print(error, rank_in(ranks));
    }
    throw;
  }
}

void ErrorReport::print_mismatch(Communicator& ranks, const Mismatch& error) {
  // Each peer either raises a Mismatch, too, and calls this function; or it caused the Mismatch, has printed its own
  // error, and leaves the job, which ends the collectives below.
  if (ranks.rank() == 0) print(error, rank_in(ranks));
  try {
    if (broadcast_text(ranks, error.message(), 0) == error.message()) {
      print_line(fmt::format("{}: rank {}: the same error as rank 0's", name(error.kind()), ranks.rank()));
    }
    print(error, rank_in(ranks));
    ranks.barrier();
  } catch (const Error&) {
    print(error, rank_in(ranks));
  }
}

void ErrorReport::print_of_all(Communicator& ranks, int origin, const std::exception& error) {
  if (ranks.rank() == origin) print(error, rank_in(ranks));
  try {
    ranks.barrier();
  } catch (const Error&) {
    print(error, rank_in(ranks));
    throw;
  }
}

int ErrorReport::exit_status(const std::function<int()>& body) {
  try {
    return print_errors_of(body);
  } catch (const std::exception& error) {
    return status_of(error);
  }
}

}  // namespace farandole
