// SPDX-License-Identifier: Apache-2.0
#include "job/job_fault.h"

#include "job/one_world.h"

namespace farandole {
namespace {

constexpr const char* kEnded =
    "the World of this communicator has ended: keep the World for as long as its communicators are used";

}  // namespace

void JobFault::check_process() const {
  if (is_forked_child()) throw InvalidArgument(describe_forked_child(place_));
}

void JobFault::check_world() const {
  if (!is_seen()) return;
  check_process();
  const std::lock_guard lock(mutex_);
  if (has_ended_) throw InvalidArgument(kEnded);
}

void JobFault::raise(const std::string& doing) const {
  check_process();
  const std::lock_guard lock(mutex_);
  throw_error(kind_, doing + text_);
}

void JobFault::set_ended() {
  const std::lock_guard lock(mutex_);
  has_ended_ = true;
  if (!exists_) set_locked(ErrorKind::kInvalidArgument, kEnded);
}

}  // namespace farandole
