// SPDX-License-Identifier: Apache-2.0
// Memory of tensors, views and scratch memory. The space of a device is pretended: nothing reads its addresses.
#include "farandole/trainer/execution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "farandole/trainer/loss.h"
#include "farandole/trainer/metric.h"
#include "farandole/trainer/optimizer.h"
#include "layer_harness.h"

namespace farandole::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr MemorySpace kDevice{MemoryKind::kCuda, 3};

/// Memory that says that it is a device's. @param kept  returns less than was wanted
TensorMemory pretended(std::vector<std::size_t>* requests = nullptr, std::size_t kept = 0) {
  return {kDevice, [=](std::size_t count, DType dtype) {
            if (requests != nullptr) requests->push_back(count);
            return Buffer(
                new std::byte[allocated_bytes(count, dtype)], count - kept, dtype,
                [](void* memory) { delete[] static_cast<std::byte*>(memory); }, kDevice);
          }};
}

TEST(VectorView, OfHostMemoryIsASpan) {
  std::vector<float> values{1, 2, 3, 4};
  const VectorView<float> view(values);
  EXPECT_TRUE(view.space().is_host());
  EXPECT_THAT(view.subview(1, 2).host(), ElementsAre(2, 3));
  view.subview(1, 2).host()[0] = 7;
  const VectorView<const float> fixed = view;
  EXPECT_THAT(fixed.host(), ElementsAre(1, 7, 3, 4));
  const BufferView buffer = view.subview(2, 2);
  EXPECT_EQ(buffer.data, values.data() + 2);
  EXPECT_EQ(buffer.count, 2U);
  EXPECT_EQ(buffer.dtype, DType::kF32);
  EXPECT_TRUE(VectorView<float>().empty());
  EXPECT_TRUE(VectorView<float>().host().empty());
}

TEST(VectorView, OfADeviceCarriesItsSpace) {
  double value = 0;
  const VectorView<double> view(&value, 1, kDevice);
  const ConstBufferView buffer = view;
  EXPECT_EQ(buffer.space, kDevice);
  EXPECT_EQ(view.subview(0, 1).space(), kDevice);
  expect_invalid([&] { (void)view.host(); }, {"memory of CUDA device 3", "copy them"});
}

TEST(TensorMemory, IsAllocatedWhenATensorGrows) {
  std::vector<std::size_t> requests;
  Tensor<float> tensor(pretended(&requests));
  EXPECT_EQ(tensor.space(), kDevice) << "before there is memory";
  tensor.resize(2, {3});
  const float* const first = tensor.data();
  tensor.resize(1, {5});
  EXPECT_EQ(tensor.data(), first);
  tensor.resize(7, {1});
  EXPECT_THAT(requests, ElementsAre(6, 7));
  const Tensor<float> moved = std::move(tensor);
  EXPECT_EQ(moved.space(), kDevice);
  EXPECT_EQ(moved.view().size(), 7U);
  expect_invalid([&] { (void)moved.host(); }, {"memory of CUDA device 3"});
}

TEST(TensorMemory, OtherMemoryThanAskedForIsAnError) {
  Tensor<double> less(pretended(nullptr, 1));
  expect_invalid([&] { less.resize(2, {2}); }, {"4 f64 elements in memory of CUDA device 3", "returned 3 f64"});
  EXPECT_EQ(less.size(), 0);
  Tensor<float> elsewhere({kDevice, [](std::size_t count, DType dtype) { return Buffer(count, dtype); }});
  expect_invalid([&] { elsewhere.resize(1, {2}); }, {"returned 2 f32 elements in host memory"});
  Tensor<float> without({kDevice, {}});
  expect_invalid([&] { without.resize(1, {2}); }, {"memory of CUDA device 3"});
}

TEST(Tensor, OfHostMemoryIsAligned) {
  for (const std::int64_t size : {1, 17, 100'000}) {
    Tensor<float> tensor(1, {size});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % 64, 0U);
    tensor.host()[static_cast<std::size_t>(size) - 1] = 5;
    EXPECT_EQ(tensor.data()[size - 1], 5);
  }
}

TEST(Workspace, GivesEachScopeItsOwnMemory) {
  Workspace workspace;
  EXPECT_EQ(workspace.bytes(), 0U);
  Workspace::Scope outer(workspace);
  const std::span<float> one = outer.take<float>(3).host();
  std::ranges::fill(one, 1.0F);
  const float* inner_memory = nullptr;
  {
    Workspace::Scope inner(workspace);
    const std::span<double> two = inner.take<double>(1'000'000).host();  // more than a block
    const std::span<float> three = inner.take<float>(5).host();
    std::ranges::fill(two, 2.0);
    std::ranges::fill(three, 3.0F);
    inner_memory = three.data();
    for (const void* const memory : {static_cast<void*>(two.data()), static_cast<void*>(three.data())}) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0U);
    }
  }
  EXPECT_THAT(one, ElementsAre(1, 1, 1)) << "memory that is in use does not move";
  Workspace::Scope next(workspace);
  (void)next.take<double>(1'000'000);
  EXPECT_EQ(next.take<float>(5).data(), inner_memory) << "given out again";
}

TEST(Workspace, GivesMemoryToItsInnermostScope) {
  Workspace workspace;
  Workspace::Scope outer(workspace);
  {
    Workspace::Scope inner(workspace);
    (void)inner.take<float>(1);
    expect_invalid([&] { (void)outer.take<float>(1); }, {"take it from the inner scope"});
  }
  EXPECT_NO_THROW((void)outer.take<float>(1));
  EXPECT_THROW((void)outer.take<float>(SIZE_MAX), std::bad_alloc);
  EXPECT_THROW((void)outer.take<double>(SIZE_MAX / 8), std::bad_alloc);
}

TEST(Workspace, JoinsItsBlocksWhenNothingIsTaken) {
  std::vector<std::size_t> requests;
  Workspace workspace(pretended(&requests));
  for (int repetition = 0; repetition < 3; ++repetition) {
    Workspace::Scope scope(workspace);
    EXPECT_EQ(scope.take<std::uint8_t>(100'000).space(), kDevice);
    (void)scope.take<std::uint8_t>(200'000);
  }
  EXPECT_THAT(requests, ElementsAre(100'032, 200'000, 300'032)) << "two blocks, then one for both";
  EXPECT_EQ(workspace.bytes(), 300'032U);
}

/// Layers that need scratch memory share it: a model needs as much as the layer that needs most.
TEST(Workspace, IsSharedByTheLayersOfAModel) {
  const auto bytes_of = [](std::int64_t blocks) {
    LayerList<double> layers;
    for (std::int64_t block = 0; block < blocks; ++block) {
      layers.push_back(attention<double>({.heads = 2}));
      layers.push_back(dense<double>(8, {.per_position = true}));
    }
    Model<double> model({16, 8}, std::move(layers));
    model.initialize(1);
    const Tensor<double> input = normal_tensor<double>(3, {16, 8}, 1);
    const Pass pass{.training = true};
    const Tensor<double>& output = model.forward(pass, input);
    model.backward(pass, input, output);
    return model.execution().workspace().bytes();
  };
  EXPECT_GT(bytes_of(1), 3 * 16 * 8 * 3 * sizeof(double));
  EXPECT_EQ(bytes_of(4), bytes_of(1));
}

TEST(Execution, OfADeviceNeedsItsStream) {
  int stream = 0;
  const Execution execution(pretended(), {&stream, kDevice}, {DType::kF32, DType::kF64});
  EXPECT_EQ(execution.space(), kDevice);
  EXPECT_EQ(execution.stream().handle, &stream);
  EXPECT_EQ(execution.precision(), (Precision{DType::kF32, DType::kF64}));
  expect_invalid([&] { Execution(pretended(), {}, {}); }, {"needs a stream of the same device, got none"});
  expect_invalid([&] { Execution({}, {&stream, kDevice}, {}); }, {"in host memory", "one of memory of CUDA device 3"});
  EXPECT_NO_THROW(execution.require(kDevice, "x"));
  expect_invalid([&] { execution.require({}, "the batch"); }, {"the batch lies in host memory", "CUDA device 3"});
}

/// What computes in host memory says so, instead of reading an address of a device.
TEST(HostCode, RefusesMemoryOfADevice) {
  Tensor<double> outputs(pretended());
  outputs.resize(2, {3});
  Batch<double> batch;
  batch.labels = {0, 1};
  const Tensor<double> none;
  const BatchView<double> targets(none, {}, outputs, {}, false);
  Tensor<double> gradient;
  const std::vector<std::string> reason{"memory of CUDA device 3", "host"};
  std::vector<double> sums(9);
  expect_invalid([&] { loss_sum(*cross_entropy_loss<double>(), Execution(), outputs, batch, 1, &gradient); }, reason);
  expect_invalid([&] { loss_sum(*mean_squared_error<double>(), Execution(), outputs, targets, 1, &gradient); }, reason);
  expect_invalid([&] { accuracy<double>()->add(Execution(), outputs, batch, sums); }, reason);
  expect_invalid([&] { mean_squared_error_metric<double>()->add(Execution(), outputs, targets, sums); }, reason);
  const NamedSpan parameter{"weight", {6}, 0, 6};
  const double scale = 1;
  for (const auto kind : {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    const std::vector<VectorView<double>> states(2, outputs.view());
    expect_invalid(
        [&] {
          make_update_rule<double>({.kind = kind})
              ->update(outputs.view(), outputs.view(), states,
                       {.execution = Execution(), .parameter = parameter, .gradient_scale = std::span(&scale, 1)});
        },
        reason);
  }
}

TEST(Execution, OfAModelIsItsMemory) {
  Model<double> model({4}, layers<double>(dense<double>(2)));
  EXPECT_TRUE(model.execution().space().is_host());
  EXPECT_EQ(model.execution().precision().compute, DType::kF64);
  Tensor<double> elsewhere(pretended());
  elsewhere.resize(1, {4});
  expect_invalid([&] { model.forward({}, elsewhere); },
                 {"the input of the model lies in memory of CUDA device 3, but this replica computes in host memory"});
  const Tensor<double> input = normal_tensor<double>(1, {4}, 1);
  const Pass pass{.training = true};
  model.forward(pass, input);
  elsewhere.resize(1, {2});
  expect_invalid([&] { model.backward(pass, input, elsewhere); }, {"the gradient of the model's output lies in"});
  expect_invalid([&] { model.place_reducible(pretended().allocate); }, {"the memory for gradients"});
  EXPECT_TRUE(model.reducible().space().is_host()) << "the model keeps its memory";
}

}  // namespace
}  // namespace farandole::trainer
