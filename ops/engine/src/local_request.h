// SPDX-License-Identifier: Apache-2.0
// This rank's requests from submission to callback, and the callbacks that they lead to.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "farandole/core/stream.h"
#include "farandole/engine.h"
#include "farandole/internal/c_interface.h"
#include "farandole/internal/deadline.h"
#include "farandole/sdk/device.h"
#include "request.h"

namespace farandole {

/// Copy of a farandole_tensor that owns shape and splits; input and output stay the caller's memory.
struct LocalTensor {
  DType dtype = DType::kU8;
  std::vector<std::int64_t> shape;
  MemorySpace space;  ///< of input and output
  /// Device memory: the stream in which the program writes the input and uses the output.
  StreamView stream;
  /// Device memory: the input is written once this event is complete. EngineDevice::prepare records it.
  std::shared_ptr<DeviceEvent> ready;
  void* ready_handle = nullptr;  ///< the program's event, instead of `ready`
  const void* input = nullptr;
  void* output = nullptr;
  std::vector<std::int64_t> splits;
  void* context = nullptr;
  void* (*allocate)(void*, const std::int64_t*, std::int32_t) = nullptr;
  void (*done)(void*, const farandole_result*) = nullptr;
  /// Shared by the tensors of a request; destroyed with the last tensor's copy, which makes the name available again
  /// (Inbox).
  std::shared_ptr<void> registration;

  /// Number of elements in a row of the first dimension.
  std::size_t row_count() const;
  std::int64_t rows() const { return shape.empty() ? 0 : shape.front(); }
  /// Number of elements.
  std::size_t count() const { return shape.empty() ? 1 : static_cast<std::size_t>(rows()) * row_count(); }
};

/// A checked request of this rank.
struct LocalRequest {
  std::uint64_t ticket = 0;
  RequestSpec spec;
  std::vector<LocalTensor> tensors;
  int process_set = 0;
  Waiting waiting = Waiting::kNobody;
  std::uint64_t generation = 0;  ///< generation in which the request's step began; 0: belongs to no step
  Clock::time_point since{};
};

/// A `done` callback that is due, with its result. Call `run` without holding locks, because the callback may submit.
struct Completion {
  LocalTensor tensor;
  std::optional<RequestError> error;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> received_splits;
  std::shared_ptr<DeviceEvent> completed = nullptr;  ///< device memory: complete after the collective; null: an error

  /// Releases the name of the request, then calls `done`.
  void run();
};

/// Request for the memory of an output whose shape became known in the exchange of rows. The batch creates the object
/// and polls `is_resolved`. The driver (the thread that drives the engine) calls `run`, which calls the user's
/// `allocate`, without holding locks. Thread-safe.
class OutputMemory {
 public:
  OutputMemory(const LocalTensor& tensor, std::vector<std::int64_t> shape)
      : context_(tensor.context), allocate_(tensor.allocate), shape_(std::move(shape)) {}

  /// Calls `allocate`. If another thread calls `cancel` meanwhile, runs the completion that was passed to `cancel`
  /// afterwards. No-op after the first call, and after `cancel`.
  void run();
  bool is_resolved() const { return stage_.load() == Stage::kResolved; }
  /// Returns the memory; null if `allocate` returned null. Call it once `is_resolved`.
  void* data() const { return data_; }
  /// Call when the tensor has failed and needs no memory. Returns `completion` for the caller to run. Returns nothing
  /// if another thread is inside `allocate`: that thread then runs `completion`.
  std::optional<Completion> cancel(Completion completion);

 private:
  enum class Stage { kAsked, kAllocating, kResolved, kCancelled };
  void* const context_;
  void* (*const allocate_)(void*, const std::int64_t*, std::int32_t);
  const std::vector<std::int64_t> shape_;
  void* data_ = nullptr;  // written before stage_ becomes kResolved
  std::mutex mutex_;      // guards changes of stage_, and after_allocate_
  std::atomic<Stage> stage_{Stage::kAsked};
  std::optional<Completion> after_allocate_;
};

/// Callback of a join: gets the job rank that joined last, or an error.
using JoinCallback = void (*)(void* context, const farandole_error*, std::int32_t last_rank);

/// The callback of a completed join. Call `run` without holding locks.
struct JoinCompletion {
  void* context = nullptr;
  JoinCallback done = nullptr;
  std::optional<RequestError> error;
  int last_rank = -1;  ///< rank in the job

  void run() const;
};

/// All callbacks that are due, in the order in which they are run.
struct DueCallbacks {
  std::vector<std::shared_ptr<OutputMemory>> memory;
  std::vector<Completion> completions;
  std::vector<JoinCompletion> joined;

  bool empty() const { return memory.empty() && completions.empty() && joined.empty(); }
  /// Appends all callbacks of `more`, and leaves it empty.
  void take(DueCallbacks& more);
  /// Runs all callbacks. Call it without holding locks.
  void run();
};

}  // namespace farandole
