// SPDX-License-Identifier: Apache-2.0
// Tensors of the trainer in the memory of a device: collectives use them, and code for host memory refuses them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "farandole/trainer/trainer.h"
#include "message_of.h"
#include "on_device.h"

namespace farandole::trainer {
namespace {

using farandole::test::device_of;
using farandole::test::for_each_device_group;
using farandole::test::message_of;
using farandole::test::to_host;
using testing::HasSubstr;

TensorMemory device_memory(Communicator& ranks) {
  return {ranks.device(),
          [&ranks](std::size_t count, DType dtype) { return ranks.allocate(count, dtype, ranks.device()); }};
}

TEST(DeviceTensor, IsReducedOnItsDevice) {
  for_each_device_group({1, 2}, [](Communicator& ranks) {
    Tensor<float> tensor(device_memory(ranks));
    tensor.resize(3, {2, 4});
    EXPECT_EQ(tensor.space(), ranks.device());
    std::vector<float> values(24);
    std::iota(values.begin(), values.end(), 1.0F);
    farandole::test::copy_now(device_of(ranks), tensor.data(), values.data(), values.size() * sizeof(float));
    ranks.allreduce(tensor.view(), ReduceOp::kSum);
    Buffer sums = to_host(ranks, tensor.view());
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(sums.as<float>()[i], values[i] * static_cast<float>(ranks.size()));
    }
    ranks.allreduce(tensor.view().subview(8, 8), ReduceOp::kSum);
    sums = to_host(ranks, tensor.view());
    EXPECT_EQ(sums.as<float>()[7], 8 * static_cast<float>(ranks.size()));
    EXPECT_EQ(sums.as<float>()[8], 9 * static_cast<float>(ranks.size() * ranks.size()));
  });
}

TEST(DeviceTensor, IsNoHostMemory) {
  for_each_device_group({1}, [](Communicator& ranks) {
    const std::string there = farandole::describe(ranks.device());
    Tensor<double> tensor(device_memory(ranks));
    tensor.resize(1, {4});
    EXPECT_THAT(message_of<InvalidArgument>([&] { (void)tensor.host(); }),
                HasSubstr(there + ", which the host cannot read"));
    EXPECT_THAT(message_of<InvalidArgument>([&] { (void)tensor.view().subview(1, 2).host(); }), HasSubstr("CUDA"));
    Model<double> model({4}, layers<double>(dense<double>(2)));
    EXPECT_THAT(message_of<InvalidArgument>([&] { model.forward({}, tensor); }),
                HasSubstr("the input of the model lies in " + there + ", but this replica computes in host"));
    Optimizer<double> optimizer({}, model.parameter_layout(), model.parameters().size());
    Tensor<double> gradients(device_memory(ranks));
    gradients.resize(1, {static_cast<std::int64_t>(model.parameters().size())});
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  optimizer.update(model.execution(), model.parameters(), gradients.view(), {.learning_rate = 1});
                }),
                HasSubstr("the gradient vector lies in " + there));
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  model.place_reducible(
                      [&](std::size_t count, DType dtype) { return ranks.allocate(count, dtype, ranks.device()); });
                }),
                HasSubstr("the memory for gradients and batch statistics lies in"));
    EXPECT_EQ(model.reducible().space(), MemorySpace{}) << "the model keeps its memory";
  });
}

TEST(DeviceExecution, HasAStreamOfItsDevice) {
  for_each_device_group({1}, [](Communicator& ranks) {
    const StreamView stream = device_of(ranks).make_stream();
    const Execution execution(device_memory(ranks), stream, {});
    EXPECT_EQ(execution.space(), ranks.device());
    EXPECT_EQ(execution.stream().handle, stream.handle);
    {
      Workspace::Scope scope(execution.workspace());
      EXPECT_EQ(scope.take<float>(100).space(), ranks.device());
    }
    EXPECT_THAT(message_of<InvalidArgument>([&] { Execution(device_memory(ranks), {}, {}); }),
                HasSubstr("needs a stream of the same device, got none"));
    EXPECT_THAT(message_of<InvalidArgument>([&] { Execution({}, stream, {}); }),
                HasSubstr("an execution in host memory needs"));
  });
}

}  // namespace
}  // namespace farandole::trainer
