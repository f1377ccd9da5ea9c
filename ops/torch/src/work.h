// SPDX-License-Identifier: Apache-2.0
// Calls in progress, as torch sees them.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Event.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "farandole/collectives.h"

namespace farandole_torch {

/// One or several calls of Farandole that belong to one call of torch. Keeps the tensors until all calls are done, even
/// if the program drops the Work.
///
/// Life: calls, each of which blocks or has a handle of `add_call`, then `launch`. Then any thread may use the Work.
/// The first thread that finds all calls done settles the Work: copies results, and lets the others know.
///
/// On a device the calls are enqueued in a stream when `launch` is called, and `wait` makes the current stream wait.
class CallWork final : public c10d::Work {
 public:
  /// @param title  for torch's profiler: "farandole:all_reduce"   @param stream  of the calls on a device; none on a
  /// CPU
  CallWork(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
           std::vector<at::Tensor> outputs, uint64_t sequence, std::chrono::milliseconds timeout,
           std::optional<c10::Stream> stream);
  ~CallWork() override;

  /// Where a C function stores the handle of a further call.
  farandole_work** add_call() { return &handles_.emplace_back(nullptr); }
  /// Keeps a tensor until the calls are done.
  void keep(const at::Tensor& tensor);
  /// Runs `action` once all calls are done without an error, before anybody learns of it.
  void then(std::function<void()> action) { actions_.push_back(std::move(action)); }
  /// Called once, after the last call. A Work without handles is done at once.
  void launch();

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override { wait(kNoTimeout); }
  /// Blocks until the calls are done; on a device makes the current stream wait. @param timeout  0: the group's
  /// @throws FarandoleError  the calls' error, or Timeout; after a Timeout of this function the calls go on
  bool wait(std::chrono::milliseconds timeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return sequence_; }
  /// The stream in which the calls run; none on a CPU.
  const std::optional<c10::Stream>& stream() const { return stream_; }

 private:
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;
  static void on_done(void* self, const farandole_error* error) noexcept;
  /// Settles the Work, if no other thread has. Returns the future to complete; null if there is none, or another thread
  /// completes it.
  Future settle();
  void run_actions();
  void complete(const Future& future) const;
  bool calls_are_done() const;
  void wait_for_calls(std::chrono::milliseconds timeout) const;

  const uint64_t sequence_;
  const std::chrono::milliseconds timeout_;  // of the group
  const std::optional<c10::Stream> stream_;
  std::optional<c10::Event> end_;        // of the calls in the stream; const after launch()
  std::deque<farandole_work*> handles_;  // const after launch(), as the two below until the Work is settled
  std::vector<at::Tensor> outputs_, kept_;
  std::vector<std::function<void()>> actions_;
  std::atomic<size_t> pending_{0};  // calls whose on_done has not run
  std::exception_ptr failure_;      // of the first call that failed; guarded by mutex_ of the base until pending_ is 0

  std::mutex settling_;      // held while a thread settles the Work
  bool is_settled_ = false;  // guarded by settling_
  Future future_;            // null until somebody asks; guarded by settling_
};

}  // namespace farandole_torch
