// SPDX-License-Identifier: Apache-2.0
// Runs engines and submits requests on ranks that are threads of the test.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "tensor_engine.h"

namespace farandole::testing {

/// One tensor of f32 on its way, with its output.
struct Pending {
  std::vector<float> input, output;
  std::vector<std::int64_t> shape, received_splits;
  std::optional<RequestError> error;
  std::atomic<bool> done{false};
  std::function<void(Pending&)> while_allocating;

  static void on_done(void* context, const farandole_result* result) {
    auto& self = *static_cast<Pending*>(context);
    if (result->error != nullptr) {
      self.error = RequestError{result->error->kind, result->error->text};
    } else {
      self.shape.assign(result->shape, result->shape + result->dimensions);
      self.received_splits.assign(result->received_splits, result->received_splits + result->received_splits_count);
    }
    self.done.store(true);
  }
  static void* on_allocate(void* context, const std::int64_t* shape, std::int32_t dimensions) {
    auto& self = *static_cast<Pending*>(context);
    if (self.while_allocating) self.while_allocating(self);
    std::int64_t count = 1;
    for (int i = 0; i < dimensions; ++i) count *= shape[i];
    self.output.assign(static_cast<std::size_t>(count), 0.0F);
    return self.output.data();
  }
};

struct RequestOptions {
  RequestKind kind = RequestKind::kAllreduce;
  ReduceOp op = ReduceOp::kSum;
  DType dtype = DType::kF32;  ///< a type of 4 bytes, whose elements lie in the floats
  bool adasum = false;
  int root = -1;
  int process_set = 0;
  double prescale = 1.0, postscale = 1.0;
  std::vector<std::int64_t> splits, arguments;
  Waiting waiting = Waiting::kNobody;
  std::uint64_t generation = 0;
  std::string about;
  bool by_order = false;
  std::function<void(Pending&)> while_allocating;
};
using PendingTensors = std::vector<std::unique_ptr<Pending>>;

/// A request with one tensor for each of `values`. The results are in `pending`, which must outlive the request.
inline LocalRequest request_of(const std::string& name, std::vector<std::vector<float>> values,
                               const RequestOptions& options, PendingTensors& pending) {
  LocalRequest request;
  request.spec.name = name;
  request.spec.kind = options.kind;
  request.spec.op = options.op;
  request.spec.adasum = options.adasum;
  request.spec.root = options.root;
  request.spec.prescale = options.prescale;
  request.spec.postscale = options.postscale;
  request.spec.arguments = options.arguments;
  request.spec.about = options.about;
  request.spec.by_order = options.by_order;
  request.process_set = options.process_set;
  request.waiting = options.waiting;
  request.generation = options.generation;
  const bool rows_differ = options.kind == RequestKind::kAllgather || options.kind == RequestKind::kAlltoall;
  for (auto& input : values) {
    auto& tensor = *pending.emplace_back(std::make_unique<Pending>());
    tensor.input = std::move(input);
    tensor.while_allocating = options.while_allocating;
    tensor.output.assign(tensor.input.size(), -1.0F);
    LocalTensor local;
    local.dtype = options.dtype;
    local.shape = {static_cast<std::int64_t>(tensor.input.size())};
    local.input = tensor.input.data();
    local.output = tensor.output.data();
    local.splits = options.splits;
    local.context = &tensor;
    local.allocate = Pending::on_allocate;
    local.done = Pending::on_done;
    request.spec.tensors.push_back({options.dtype, rows_differ ? std::vector<std::int64_t>() : local.shape});
    request.tensors.push_back(std::move(local));
  }
  return request;
}

/// Submits requests and waits for them.
class Client {
 public:
  explicit Client(TensorEngine& engine) : engine_(engine) {}
  using Options = RequestOptions;
  using Tensors = PendingTensors;

  Tensors submit(const std::string& name, std::vector<std::vector<float>> values, const Options& options) {
    Tensors pending;
    engine_.submit(request_of(name, std::move(values), options, pending));
    return pending;
  }

  void wait(const Tensors& pending) {
    engine_.wait_until([&] {
      return std::all_of(pending.begin(), pending.end(), [](const auto& each) { return each->done.load(); });
    });
  }

  /// Submits one tensor and waits. @throws  the error of the request
  std::vector<float> run(const std::string& name, std::vector<float> values, Options options) {
    options.waiting = Waiting::kCaller;
    std::vector<std::vector<float>> one;
    one.push_back(std::move(values));
    const Tensors pending = submit(name, std::move(one), options);
    wait(pending);
    if (pending.front()->error) throw_error(pending.front()->error->kind, pending.front()->error->text);
    return pending.front()->output;
  }
  std::vector<float> allreduce(const std::string& name, std::vector<float> values) {
    return run(name, std::move(values), {});
  }

 private:
  TensorEngine& engine_;
};

/// Text of the Mismatch that the call throws, soon.
inline std::string mismatch_of(const std::function<void()>& call) {
  const auto start = Clock::now();
  try {
    call();
  } catch (const Mismatch& error) {
    EXPECT_LT(Seconds(Clock::now() - start).count(), 1.0);
    return error.what();
  }
  ADD_FAILURE() << "no Mismatch was raised";
  return {};
}

/// Runs `body` on ranks with an engine each, and leaves in good order.
inline void run_engines(int ranks, const std::function<void(TensorEngine&, Client&)>& body) {
  run_replicas(ranks, [&](Communicator& communicator) {
    TensorEngine engine(communicator);
    Client client(engine);
    body(engine, client);
    engine.leave();
  });
}

}  // namespace farandole::testing
