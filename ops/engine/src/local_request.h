// SPDX-License-Identifier: Apache-2.0
// A request of this rank, from its submission to the callbacks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "farandole/engine.h"
#include "farandole/internal/deadline.h"
#include "request.h"

/// The error object of the C header.
struct farandole_error {  // NOLINT(readability-identifier-naming): declared in C
  farandole::ErrorKind kind = farandole::ErrorKind::kInternal;
  std::string text;
};

namespace farandole {

/// farandole_tensor with memory of its own for shape and splits.
struct LocalTensor {
  DType dtype = DType::kU8;
  std::vector<std::int64_t> shape;
  MemoryKind memory = MemoryKind::kHost;  ///< of input and output
  const void* input = nullptr;
  void* output = nullptr;
  std::vector<std::int64_t> splits;
  void* context = nullptr;
  void* (*allocate)(void*, const std::int64_t*, std::int32_t) = nullptr;
  void (*done)(void*, const farandole_result*) = nullptr;
  /// Shared by the tensors of a request; when the last one lets go of it, the name is free again.
  std::shared_ptr<void> registration;

  /// Elements of one row of the first dimension.
  std::size_t row_count() const;
  std::int64_t rows() const { return shape.empty() ? 0 : shape.front(); }
};

struct LocalRequest {
  std::uint64_t ticket = 0;
  RequestSpec spec;
  std::vector<LocalTensor> tensors;
  int process_set = 0;
  Waiting waiting = Waiting::kNobody;
  std::uint64_t generation = 0;  ///< in which its step began; 0: it is of none
  Clock::time_point since{};
};

/// A callback that is due. Run without locks held, because it may submit.
struct Completion {
  LocalTensor tensor;
  std::optional<RequestError> error;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> received_splits;

  void run();
};

/// Memory for an output whose shape ranks have learnt from each other. The batch asks for it, and the thread that moves
/// the engine on calls `allocate` without locks held, as any callback. Thread-safe.
class OutputMemory {
 public:
  OutputMemory(const LocalTensor& tensor, std::vector<std::int64_t> shape)
      : context_(tensor.context), allocate_(tensor.allocate), shape_(std::move(shape)) {}

  /// Calls `allocate`, and then what was left to it by `give_up`.
  void run();
  bool is_there() const { return stage_.load() == Stage::kThere; }
  /// Null: the caller has none. Once it `is_there`.
  void* data() const { return data_; }
  /// The tensor fails. `completion`, to be run at once unless a thread is in `allocate`, which then runs it.
  std::optional<Completion> give_up(Completion completion);

 private:
  enum class Stage { kAsked, kAllocating, kThere, kGivenUp };
  void* const context_;
  void* (*const allocate_)(void*, const std::int64_t*, std::int32_t);
  const std::vector<std::int64_t> shape_;
  void* data_ = nullptr;  // written before kThere
  std::mutex mutex_;      // guards changes of stage_, and last_
  std::atomic<Stage> stage_{Stage::kAsked};
  std::optional<Completion> last_;
};

/// The callback of a join: with the job's rank that joined last, or an error.
using JoinCallback = void (*)(void* context, const farandole_error*, std::int32_t last_rank);

/// A join that is over. Run without locks held.
struct Joined {
  void* context = nullptr;
  JoinCallback done = nullptr;
  std::optional<RequestError> error;
  int last_rank = -1;  ///< of the job

  void run() const;
};

/// Callbacks that are due.
struct Due {
  std::vector<std::shared_ptr<OutputMemory>> memory;
  std::vector<Completion> completions;
  std::vector<Joined> joined;

  bool empty() const { return memory.empty() && completions.empty() && joined.empty(); }
  /// Takes all of `more`, to be run after what is here.
  void take(Due& more);
  /// Without locks held.
  void run();
};

}  // namespace farandole
