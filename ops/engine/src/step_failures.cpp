// SPDX-License-Identifier: Apache-2.0
#include "step_failures.h"

#include <fmt/core.h>

namespace farandole {

std::optional<RequestError> StepFailures::refusal_of(const std::string& name, Generation generation) const {
  if (generation == kNoStep || generation >= generation_) return std::nullopt;
  return error(name);
}

RequestError StepFailures::error(const std::string& name) const {
  return {ErrorKind::kMismatch, fmt::format("'{}' is of a step that has failed: {}", name, text_)};
}

void StepFailures::fail(const std::string& text) {
  if (!std::exchange(fails_, true)) text_ = text;
}

bool StepFailures::end_negotiation() {
  if (!std::exchange(fails_, false)) return false;
  ++generation_;
  return true;
}

void StepFailures::give_up() {
  fails_ = false;
  withheld_.clear();
}

}  // namespace farandole
