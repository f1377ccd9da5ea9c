// SPDX-License-Identifier: Apache-2.0
#include "local_request.h"

#include <algorithm>
#include <iterator>

namespace farandole {
namespace {

template <class T>
void move_to_end(std::vector<T>& from, std::vector<T>& to) {
  std::move(from.begin(), from.end(), std::back_inserter(to));
  from.clear();
}

}  // namespace

std::size_t LocalTensor::row_count() const {
  std::size_t product = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) product *= static_cast<std::size_t>(shape[i]);
  return product;
}

void Completion::run() {
  // Frees the name before the callback, which may submit the name again.
  tensor.registration.reset();
  if (tensor.done == nullptr) return;
  farandole_error failure;
  if (error) failure = {error->kind, error->text};
  farandole_result result{};
  result.struct_bytes = sizeof result;
  result.error = error ? &failure : nullptr;
  result.shape = shape.data();
  result.dimensions = static_cast<std::int32_t>(shape.size());
  result.received_splits = received_splits.data();
  result.received_splits_count = static_cast<std::int32_t>(received_splits.size());
  result.completion_event = completed == nullptr ? nullptr : completed->handle();
  tensor.done(tensor.context, &result);
}

void OutputMemory::run() {
  {
    const std::lock_guard lock(mutex_);
    if (stage_ != Stage::kAsked) return;
    stage_ = Stage::kAllocating;
  }
  data_ = allocate_(context_, shape_.data(), static_cast<std::int32_t>(shape_.size()));
  std::optional<Completion> completion;
  {
    const std::lock_guard lock(mutex_);
    stage_ = Stage::kResolved;
    completion.swap(after_allocate_);
  }
  if (completion) completion->run();
}

std::optional<Completion> OutputMemory::cancel(Completion completion) {
  const std::lock_guard lock(mutex_);
  if (stage_ == Stage::kAllocating) {
    after_allocate_ = std::move(completion);
    return std::nullopt;
  }
  if (stage_ == Stage::kAsked) stage_ = Stage::kCancelled;
  return completion;
}

void JoinCompletion::run() const {
  if (done == nullptr) return;
  farandole_error failure;
  if (error) failure = {error->kind, error->text};
  done(context, error ? &failure : nullptr, last_rank);
}

void DueCallbacks::take(DueCallbacks& more) {
  move_to_end(more.memory, memory);
  move_to_end(more.completions, completions);
  move_to_end(more.joined, joined);
}

void DueCallbacks::run() {
  for (const auto& each : memory) each->run();
  for (Completion& each : completions) each.run();
  for (const JoinCompletion& each : joined) each.run();
}

}  // namespace farandole
