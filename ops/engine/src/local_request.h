// A request of this rank, from its submission to the callbacks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "farandole/core/deadline.h"
#include "farandole/engine.h"
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
  bool caller_waits = false;
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

}  // namespace farandole
