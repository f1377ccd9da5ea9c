// SPDX-License-Identifier: Apache-2.0
#include "job/one_world.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "farandole/core/error.h"
#include "farandole/core/world.h"
#include "farandole/internal/forked_children.h"

namespace farandole {
namespace {

struct Membership {
  bool is_taken = false;
  std::string place;        // description of the process's rank; empty while the World joins
  std::string forked_from;  // in a forked child: the parent's place
};

void become_child(Membership& membership) {
  if (!membership.place.empty()) membership.forked_from = std::move(membership.place);
  membership.place.clear();
  membership.is_taken = false;
}
using OfThisProcess = ProcessState<Membership, become_child>;

}  // namespace

OneWorld::OneWorld(bool is_alone) : is_alone_(is_alone) {
  if (is_alone) return;
  std::string place;
  {
    auto membership = OfThisProcess::access();
    if (!std::exchange(membership->is_taken, true)) return;
    place = membership->place;
  }
  throw InvalidArgument(fmt::format(
      "a second World: this process {}, and has one World at a time; use it, or end it first (the engine's with "
      "farandole_shutdown, in Python farandole.shutdown()); Worlds of this process alone may live beside it "
      "(WorldOptions::alone, run_replicas(n, ...))",
      place.empty() ? "is joining a job in another thread" : "is " + place + " already"));
}

OneWorld::~OneWorld() {
  if (is_alone_) return;
  auto membership = OfThisProcess::access();
  membership->is_taken = false;
  membership->place.clear();
}

void OneWorld::set_place(std::string place) {
  if (!is_alone_) OfThisProcess::access()->place = std::move(place);
}

bool OneWorld::names_the_log() const {
  return !is_alone_ || !OfThisProcess::access()->is_taken;
}

std::string describe_forked_child(std::string_view place) {
  return fmt::format(
      "this process (pid {}) was forked from {}, and is no rank itself: call Farandole in the rank, or start this "
      "process as a program of its own (exec; in Python multiprocessing's 'spawn' or 'forkserver'); with "
      "FARANDOLE_RANK, FARANDOLE_SIZE and FARANDOLE_JOB of its own it may join another job",
      getpid(), place);
}

void check_not_forked() {
  std::string place = OfThisProcess::access()->forked_from;
  if (!place.empty()) throw InvalidArgument(describe_forked_child(place));
}

}  // namespace farandole
