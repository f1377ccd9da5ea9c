// SPDX-License-Identifier: Apache-2.0
#include "work_list.h"

#include <algorithm>

namespace farandole_torch {

bool WorkList::isCompleted() {
  return std::all_of(works_.begin(), works_.end(), [](const WorkPointer& work) { return work->isCompleted(); });
}

bool WorkList::isSuccess() const {
  return std::all_of(works_.begin(), works_.end(), [](const WorkPointer& work) { return work->isSuccess(); });
}

std::exception_ptr WorkList::exception() const {
  for (const WorkPointer& work : works_) {
    if (const std::exception_ptr failure = work->exception()) return failure;
  }
  return nullptr;
}

std::vector<at::Tensor> WorkList::result() {
  std::vector<at::Tensor> all;
  for (const WorkPointer& work : works_) {
    for (const at::Tensor& tensor : work->result()) all.push_back(tensor);
  }
  return all;
}

bool WorkList::wait(std::chrono::milliseconds timeout) {
  for (const WorkPointer& work : works_) work->wait(timeout);
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> WorkList::getFuture() {
  c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(
      c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
  for (const WorkPointer& work : works_) futures.push_back(work->getFuture());
  return c10::collectAll(futures);
}

}  // namespace farandole_torch
