// SPDX-License-Identifier: Apache-2.0
// How the functions of FarandoleBackend begin their calls. Included by the files that define these functions.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend.h"
#include "device_stream.h"
#include "errors.h"

namespace farandole_torch {

/// The device of all tensors; the CPU if there are none. @throws InvalidArgument  they lie on several
at::Device common_device(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs,
                         const char* title);
/// @throws InvalidArgument  the numbers differ. @param which  what is counted
void need_size(const char* what, const char* which, size_t expected, size_t found);
/// @throws InvalidArgument  the root is no rank of the group
void need_root(const char* what, int64_t root, int size);
/// @throws InvalidArgument  types or devices differ
void need_same_type(const char* what, const at::Tensor& input, const at::Tensor& output);

/// How a call runs.
struct Mode {
  bool is_async = true;
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;  // of waits for the call
};

template <class Options>
Mode mode_of(const Options& options) {
  return {options.asyncOp, options.timeout};
}

/// One call of torch: makes the Work, and runs calls of Farandole for it. Holds the mutex.
class FarandoleBackend::Start {
 public:
  Start(FarandoleBackend& backend, const Mode& mode, c10d::OpType type, const char* title, const Tensors& inputs,
        const Tensors& outputs, const StreamUse& use = {})
      : backend_(backend), lock_(backend.mutex_), comm_(backend.comm()) {
    const at::Device device = common_device(inputs, outputs, title);
    std::optional<c10::Stream> stream;
    if (!device.is_cpu()) {
      stream = backend.stream_on(device, use);
      order(current_stream(device), *stream);
    }
    const auto timeout = mode.timeout > kNoTimeout ? mode.timeout : backend.wait_timeout_;
    has_handles_ = device.is_cpu() && (mode.is_async || timeout > kNoTimeout);
    work_ = c10::make_intrusive<CallWork>(backend.rank_, type, title, inputs, outputs, ++backend.sequence_, timeout,
                                          stream);
    fill_options(stream);
  }
  Start(const Start&) = delete;
  Start& operator=(const Start&) = delete;
  /// If a call has failed to start, earlier calls of the same Work go on.
  ~Start() {
    if (lock_.owns_lock()) work_->launch();
  }

  farandole_comm* comm() const { return comm_; }
  CallWork& work() { return *work_; }
  /// The parameter `options` of the next call; null if there are none.
  const farandole_call_options* options(double prescale = 1.0) {
    options_.prescale = prescale;
    options_.has_factors = prescale == 1.0 ? 0 : 1;
    return options_.has_factors != 0 || options_.memory != FARANDOLE_HOST_MEMORY ? &options_ : nullptr;
  }
  /// The parameter `work` of the next call: null if the call blocks, or until it is enqueued on a device.
  farandole_work** handle() { return has_handles_ ? work_->add_call() : nullptr; }
  /// Keeps the memory of a tensor until the calls are done, and then copies the results to the tensor.
  void use(const Staged& staged) {
    if (staged.memory.is_same(staged.tensor)) return;
    work_->keep(staged.memory);
    if (staged.use == Use::kInput) return;
    work_->then([memory = staged.memory, tensor = staged.tensor] {
      const at::NoGradGuard no_grad;
      tensor.copy_(memory);
    });
  }
  /// Copies the parts of `whole` to the tensors of `list`, whose memory it joins, once the calls are done.
  void divide_at_end(const at::Tensor& whole, Tensors list) {
    work_->keep(whole);
    work_->then([whole, list = std::move(list)]() mutable { divide(whole, list); });
  }
  c10::intrusive_ptr<CallWork> launch() {
    lock_.unlock();  // callbacks may start further calls
    work_->launch();
    backend_.collect(work_);
    return work_;
  }

 private:
  void fill_options(const std::optional<c10::Stream>& stream) {
    options_.struct_bytes = sizeof options_;
    options_.postscale = 1.0;
    if (!stream) return;
    options_.memory = FARANDOLE_CUDA_MEMORY;
    options_.device = stream->device_index();
    options_.stream = stream->native_handle();
    options_.has_stream = 1;
  }

  FarandoleBackend& backend_;
  std::unique_lock<std::mutex> lock_;
  farandole_comm* const comm_;
  farandole_call_options options_{};
  bool has_handles_ = false;
  c10::intrusive_ptr<CallWork> work_;
};

}  // namespace farandole_torch
