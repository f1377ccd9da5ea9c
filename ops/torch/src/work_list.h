// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <utility>
#include <vector>

namespace farandole_torch {

/// The calls between startCoalescing() and endCoalescing() as one Work.
class WorkList final : public c10d::Work {
 public:
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;
  WorkList(int rank, std::vector<WorkPointer> works)
      : Work(rank, c10d::OpType::COALESCED, "farandole:coalesced"), works_(std::move(works)) {}

  bool isCompleted() override;
  bool isSuccess() const override;
  /// The first call's error; null if there is none.
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override { wait(kNoTimeout); }
  /// Waits for one call after the other. @param timeout  of each wait; 0: the group's
  bool wait(std::chrono::milliseconds timeout) override;
  /// Done when all calls are; its value is a list of the calls' results.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  const std::vector<WorkPointer> works_;
};

}  // namespace farandole_torch
