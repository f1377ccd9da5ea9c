// SPDX-License-Identifier: Apache-2.0
#include "work_list.h"

#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

namespace farandole_torch {
namespace {

using Future = c10::ivalue::Future;
using Works = WorkList::Works;

std::vector<at::Tensor> outputs_of(const Works& works) {
  std::vector<at::Tensor> all;
  for (const auto& work : works) {
    for (const at::Tensor& tensor : work->result()) all.push_back(tensor);
  }
  return all;
}

std::exception_ptr first_error(const Works& works) {
  for (const auto& work : works) {
    if (const std::exception_ptr failure = work->exception()) return failure;
  }
  return nullptr;
}

/// The streams in which the calls run; none on a CPU.
std::vector<c10::Stream> streams_of(const Works& works) {
  std::vector<c10::Stream> streams;
  for (const auto& work : works) {
    const auto& stream = work->stream();
    if (stream && std::find(streams.begin(), streams.end(), *stream) == streams.end()) streams.push_back(*stream);
  }
  return streams;
}

void complete(Future& future, const Works& works, const std::vector<c10::Stream>& streams) {
  if (const std::exception_ptr failure = first_error(works)) return future.setError(failure);
  const c10::MultiStreamGuard guard(streams);
  future.markCompleted(c10::IValue(outputs_of(works)));
}

}  // namespace

WorkList::WorkList(int rank, Works works)
    : Work(rank, c10d::OpType::COALESCED, "farandole:coalesced"), works_(std::move(works)) {}

bool WorkList::isCompleted() {
  return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isCompleted(); });
}

bool WorkList::isSuccess() const {
  return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isSuccess(); });
}

std::exception_ptr WorkList::exception() const {
  return first_error(works_);
}

std::vector<at::Tensor> WorkList::result() {
  return outputs_of(works_);
}

bool WorkList::wait(std::chrono::milliseconds timeout) {
  for (const auto& work : works_) work->wait(timeout);
  return true;
}

c10::intrusive_ptr<Future> WorkList::getFuture() {
  const std::vector<c10::Stream> streams = streams_of(works_);
  std::vector<at::Device> devices;
  for (const c10::Stream& stream : streams) devices.push_back(stream.device());
  auto all = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()), devices);
  if (works_.empty()) complete(*all, works_, streams);
  const auto pending = std::make_shared<std::atomic<size_t>>(works_.size());
  for (const auto& work : works_) {
    work->getFuture()->addCallback([all, pending, works = works_, streams](Future& /*of_work*/) {
      if (pending->fetch_sub(1, std::memory_order_acq_rel) == 1) complete(*all, works, streams);
    });
  }
  return all;
}

}  // namespace farandole_torch
