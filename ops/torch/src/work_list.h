// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <vector>

#include "work.h"

namespace farandole_torch {

/// The calls between startCoalescing() and endCoalescing() as one Work.
class WorkList final : public c10d::Work {
 public:
  using Works = std::vector<c10::intrusive_ptr<CallWork>>;
  WorkList(int rank, Works works);

  bool isCompleted() override;
  bool isSuccess() const override;
  /// The first call's error; null if there is none.
  std::exception_ptr exception() const override;
  /// The outputs of all calls, in the order of the calls.
  std::vector<at::Tensor> result() override;
  void synchronize() override { wait(kNoTimeout); }
  /// Waits for one call after the other. @param timeout  of each wait; 0: the group's
  bool wait(std::chrono::milliseconds timeout) override;
  /// Done when all calls are; its value is `result()`. On devices its users' streams wait for the calls.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  const Works works_;
};

}  // namespace farandole_torch
