// SPDX-License-Identifier: Apache-2.0
// Calls in progress, as torch sees them.
#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "farandole/collectives.h"

namespace farandole_torch {

/// One or several calls of Farandole that belong to one call of torch. Keeps the tensors until all calls are done, even
/// if the program drops the Work.
///
/// Life: `begin` calls, each with a handle, then `launch`. Any thread may wait; the first thread that finds all calls
/// done finishes the Work: copies results, completes the future.
class CallWork final : public c10d::Work {
 public:
  /// @param title  for torch's profiler: "farandole:all_reduce"
  CallWork(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
           std::vector<at::Tensor> outputs);
  ~CallWork() override;

  /// Where a C function stores the handle of the next call.
  farandole_work** begin();
  /// Keeps a tensor that the calls use until they are done.
  void keep(at::Tensor tensor) { kept_.push_back(std::move(tensor)); }
  /// Runs `action` once all calls are done without an error, before anybody learns that.
  void then(std::function<void()> action) { actions_.push_back(std::move(action)); }
  /// Called once, after the last `begin`. Without calls the Work is done at once.
  void launch();

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override { wait(kNoTimeout); }
  /// Blocks until the calls are done. @param timeout  0: until the group's own deadline
  /// @throws  their error, or Timeout; the calls go on after a Timeout of this function
  bool wait(std::chrono::milliseconds timeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  struct FreeWork {
    void operator()(farandole_work* work) const { farandole_work_free(work); }
  };
  using Handle = std::unique_ptr<farandole_work, FreeWork>;
  static void on_done(void* self, const farandole_error* error);
  /// Finishes the Work; no-op in all calls but the first.
  void complete();
  bool all_are_done();
  void wait_for_calls(std::chrono::milliseconds timeout);

  std::vector<farandole_work*> raw_;  // of begin(), until launch()
  std::vector<Handle> handles_;       // const after launch()
  std::vector<at::Tensor> outputs_, kept_;
  std::vector<std::function<void()>> actions_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::atomic<size_t> unfinished_{0};  // calls whose on_done has not run
  std::mutex completing_;              // held while a thread finishes the Work
  bool is_complete_ = false;           // guarded by completing_
  std::exception_ptr failure_;         // of the first call that failed; guarded by mutex_ of the base
};

}  // namespace farandole_torch
