// SPDX-License-Identifier: Apache-2.0
// Convolutions on devices, by cuDNN and by patches: results of the host, the choice of algorithms, and what happens
// without memory or algorithm. With FARANDOLE_CUDNN_LIBRARY=off everything goes by patches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "broken_device.h"
#include "cudnn_plans.h"
#include "double_calls.h"
#include "graph_capture.h"
#include "kernel_comparison.h"
#include "message_of.h"
#include "on_device.h"

namespace farandole::trainer::test {
namespace {

using farandole::test::calls_of;
using farandole::test::inject_into_double;
using farandole::test::message_of;
using farandole::test::on_each_device;
using testing::HasSubstr;

bool uses_cudnn(const Execution& execution) {
  return execution.device_kernels()->convolution_library(DType::kF32).starts_with("cuDNN");
}
/// True if convolutions are computed by the double of cuDNN, which counts calls and fails when it is told to.
bool uses_fake_cudnn(const Execution& execution) {
  return uses_cudnn(execution) && farandole::test::find_in_driver<decltype(fake_device_set)>("fake_device_set");
}
void restore_double() {
  farandole::test::find_in_driver<decltype(fake_device_restore)>("fake_device_restore")();
}
void set_workspace(const char* bytes) {
  farandole::test::find_in_driver<decltype(fake_device_set)>("fake_device_set")("FAKE_CUDNN_WORKSPACE", bytes);
}

ConvolutionGeometry geometry_of(const Shape& image, std::int64_t channels, const KernelWindow& window) {
  ConvolutionGeometry geometry = convolution_geometry("conv2d", image, window);
  geometry.channels = channels;
  return geometry;
}

/// All passes of a convolution, with and without a bias and a gradient of the input.
template <class T>
void expect_results_of_host(Communicator& ranks, AlgorithmChoice choice, const ConvolutionGeometry& g,
                            std::int64_t samples) {
  const std::int64_t inputs = samples * g.input_elements(), outputs = samples * g.output_positions() * g.channels;
  const std::int64_t weights = g.patch_elements() * g.channels;
  const double error = std::is_same_v<T, float> ? 1e-4 : 1e-11;
  Comparison<T>(ranks, {choice})
      .with(fine_values<T>(inputs, 1))
      .with(fine_values<T>(weights, 2))
      .with(fine_values<T>(g.channels, 3))
      .with(std::vector<T>(static_cast<std::size_t>(outputs)))
      .with(fine_values<T>(outputs, 4))
      .with(fine_values<T>(weights, 5))
      .with(fine_values<T>(g.channels, 6))
      .with(fine_values<T>(inputs, 7))
      .expect_equal(error, [&](const Kernels<T>& kernels, Workspace& workspace, const Vectors<T>& v) {
        const auto convolution = kernels.convolution(g, {.library = ConvolutionLibrary::kEigen});
        for (int pass = 0; pass < 2; ++pass) {
          convolution->forward(workspace, samples, v[0], v[1], v[2], v[3]);
          convolution->backward(workspace, samples, v[0], v[1], v[4], v[5], v[6], v[7]);
        }
        convolution->forward(workspace, samples, v[0], v[1], nullptr, v[4]);
        convolution->backward(workspace, samples, v[0], v[1], v[3], v[5], nullptr, nullptr);
      });
}

template <class T>
class DeviceConvolutions : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(DeviceConvolutions, Types, );

TYPED_TEST(DeviceConvolutions, HaveTheResultsOfTheHost) {
  on_each_device([](Communicator& ranks) {
    for (const auto& window : {KernelWindow{3, 1, 0}, {3, 1, 1}, {3, 2, 1}, {1, 1, 0}, {1, 2, 0}, {4, 3, 2}}) {
      const ConvolutionGeometry geometry = geometry_of({6, 7, 2}, 3, window);
      for (const std::int64_t samples : {1, 5, 7}) {
        expect_results_of_host<TypeParam>(ranks, AlgorithmChoice::kFixed, geometry, samples);
      }
      expect_results_of_host<TypeParam>(ranks, AlgorithmChoice::kMeasured, geometry, 4);
    }
  });
}

/// A convolution of a device with memory of its own.
class DeviceLayer {
 public:
  DeviceLayer(const Execution& execution, const ConvolutionGeometry& geometry, std::int64_t samples)
      : execution_(execution),
        samples_(samples),
        convolution_(kernels_of<float>(execution).convolution(geometry, {})),
        inputs_(on_device(fine_values<float>(samples * geometry.input_elements(), 1))),
        weights_(on_device(fine_values<float>(geometry.patch_elements() * geometry.channels, 2))),
        outputs_(on_device(fine_values<float>(samples * geometry.output_positions() * geometry.channels, 3))),
        results_{outputs_like(outputs_), outputs_like(weights_), outputs_like(inputs_)} {}

  void run() {
    convolution_->forward(execution_.workspace(), samples_, at(inputs_), at(weights_), nullptr, at(results_[0]));
    convolution_->backward(execution_.workspace(), samples_, at(inputs_), at(weights_), at(outputs_), at(results_[1]),
                           nullptr, at(results_[2]));
  }
  void clear() {
    for (Buffer& result : results_) kernels_of<float>(execution_).clear(count(result), at(result));
  }
  /// Output, weight gradient and input gradient, one after another.
  std::vector<float> results() {
    std::vector<float> all;
    for (Buffer& result : results_) {
      const BufferView view = result.view();
      const auto values = to_host<float>(execution_, {static_cast<const float*>(view.data), view.count, view.space});
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

 private:
  static float* at(Buffer& buffer) { return static_cast<float*>(buffer.view().data); }
  static std::int64_t count(Buffer& buffer) { return static_cast<std::int64_t>(buffer.view().count); }
  Buffer outputs_like(Buffer& buffer) { return allocate(execution_.memory(), buffer.view().count, DType::kF32); }
  Buffer on_device(std::vector<float> values) {
    Buffer buffer = allocate(execution_.memory(), values.size(), DType::kF32);
    copy_now(execution_, buffer.view(), VectorView<float>(values));
    return buffer;
  }

  const Execution execution_;
  const std::int64_t samples_;
  const std::unique_ptr<Convolution<float>> convolution_;
  Buffer inputs_, weights_, outputs_;
  std::array<Buffer, 3> results_;
};

std::vector<float> results_of(const Execution& execution, const ConvolutionGeometry& geometry, std::int64_t samples) {
  DeviceLayer layer(execution, geometry, samples);
  layer.run();
  return layer.results();
}

const ConvolutionGeometry kGeometry = geometry_of({8, 7, 5}, 6, {3, 1, 1});

TEST(ConvolutionAlgorithms, GiveTheSameBitsEachTime) {
  on_each_device([](Communicator& ranks) {
    for (const AlgorithmChoice choice : {AlgorithmChoice::kFixed, AlgorithmChoice::kMeasured}) {
      const Execution execution = device_execution(ranks, {choice});
      DeviceLayer layer(execution, kGeometry, 3);
      layer.run();
      const std::vector<float> first = layer.results();
      for (int again = 0; again < 5; ++again) {
        layer.run();
        ASSERT_EQ(layer.results(), first);
      }
    }
  });
}

TEST(ConvolutionAlgorithms, AreFixedOnRequest) {
  on_each_device([](Communicator& ranks) {
    const std::vector<float> first = results_of(device_execution(ranks), kGeometry, 3);
    for (int again = 0; again < 10; ++again) EXPECT_EQ(results_of(device_execution(ranks), kGeometry, 3), first);
  });
}

/// Calls that choose an algorithm, allocate or wait.
unsigned long calls_of_first_uses() {
  unsigned long calls = 0;
  for (const char* pass : {"Forward", "BackwardData", "BackwardFilter"}) {
    calls += calls_of(("cudnnGetConvolution" + std::string(pass) + "Algorithm_v7").c_str()) +
             calls_of(("cudnnFindConvolution" + std::string(pass) + "AlgorithmEx").c_str());
  }
  for (const char* call : {"cuMemAlloc_v2", "cuMemFree_v2", "cuStreamSynchronize", "cudnnCreateTensorDescriptor"}) {
    calls += calls_of(call);
  }
  return calls;
}

TEST(ConvolutionAlgorithms, AreChosenOnceForEachShape) {
  on_each_device([](Communicator& ranks) {
    for (const AlgorithmChoice choice : {AlgorithmChoice::kFixed, AlgorithmChoice::kMeasured}) {
      const Execution execution = device_execution(ranks, {choice});
      if (!uses_fake_cudnn(execution)) GTEST_SKIP() << "only the double of cuDNN counts calls";
      const unsigned long before = calls_of_first_uses();
      DeviceLayer first(execution, kGeometry, 2), of_same_shape(execution, kGeometry, 2);
      first.run();
      const unsigned long after = calls_of_first_uses();
      EXPECT_GT(after, before);
      for (int again = 0; again < 3; ++again) {
        first.run();
        of_same_shape.run();
      }
      EXPECT_EQ(calls_of_first_uses(), after);
      EXPECT_EQ(of_same_shape.results(), first.results());
    }
  });
}

TEST(ConvolutionAlgorithms, CanBeCapturedAfterTheirFirstUse) {
  on_each_device([](Communicator& ranks) {
    const Execution execution = device_execution(ranks, {AlgorithmChoice::kMeasured});
    Device& device = farandole::test::device_of(ranks);
    DeviceLayer layer(execution, kGeometry, 3);
    layer.run();
    const std::vector<float> expected = layer.results();
    farandole::test::StreamCapture capture(device, execution.stream());
    layer.run();
    const auto graph = capture.end();
    layer.clear();
    EXPECT_NE(layer.results(), expected);
    graph->launch(execution.stream());
    EXPECT_EQ(layer.results(), expected);
  });
}

TEST(ConvolutionAlgorithms, OfShapesUsedLongAgoAreDropped) {
  on_each_device([](Communicator& ranks) {
    const Execution execution = device_execution(ranks);
    if (!uses_fake_cudnn(execution)) GTEST_SKIP() << "only the double of cuDNN counts calls";
    const auto kept = [] { return calls_of("cudnnCreateFilterDescriptor") - calls_of("cudnnDestroyFilterDescriptor"); };
    const unsigned long before = kept();
    const ConvolutionGeometry geometry = geometry_of({1, 1, 1}, 1, {1, 1, 0});
    constexpr auto kMost = static_cast<std::int64_t>(cuda::CudnnPlans::kMaxPlans);
    for (std::int64_t samples = kMost + 10; samples > 0; --samples) results_of(execution, geometry, samples);
    EXPECT_EQ(kept() - before, cuda::CudnnPlans::kMaxPlans);
    const unsigned long made = calls_of("cudnnCreateFilterDescriptor");
    for (const std::int64_t samples : {kMost, std::int64_t{2}}) results_of(execution, geometry, samples);
    EXPECT_EQ(calls_of("cudnnCreateFilterDescriptor"), made);
    results_of(execution, geometry, kMost + 1);
    EXPECT_EQ(calls_of("cudnnCreateFilterDescriptor"), made + 1);
    results_of(execution, geometry, kMost);
    EXPECT_EQ(calls_of("cudnnCreateFilterDescriptor"), made + 1) << "it was used lately";
  });
}

TEST(ConvolutionAlgorithms, NeedLessMemoryWhereThereIsLittle) {
  on_each_device([](Communicator& ranks) {
    for (const AlgorithmChoice choice : {AlgorithmChoice::kFixed, AlgorithmChoice::kMeasured}) {
      const Execution execution = device_execution(ranks, {choice});
      if (!uses_fake_cudnn(execution)) GTEST_SKIP() << "only the double of cuDNN runs out of memory on request";
      DeviceLayer layer(execution, kGeometry, 2);
      results_of(execution, kGeometry, 3);  // the workspace has memory for filters
      set_workspace("64M");
      inject_into_double("cuMemAlloc", 0, 2);
      layer.run();
      restore_double();
      set_workspace("20K");
      EXPECT_EQ(execution.workspace().bytes(), std::size_t{64} << 10);
      const std::vector<float> found = layer.results();
      const std::vector<float> expected = results_of(device_execution(ranks), kGeometry, 2);
      for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-4) << i;
    }
  });
}

TEST(ConvolutionAlgorithms, KeepToTheLimitOfTheWorkspace) {
  on_each_device([](Communicator& ranks) {
    const Execution execution = device_execution(ranks);
    if (!uses_fake_cudnn(execution)) GTEST_SKIP() << "only the double of cuDNN needs memory on request";
    set_workspace("129M");  // the double's devices have 1 GiB
    results_of(execution, kGeometry, 2);
    set_workspace("20K");
    EXPECT_LT(execution.workspace().bytes(), std::size_t{1} << 20);
  });
}

TEST(ConvolutionAlgorithms, AreReplacedByPatchesWhereCudnnHasNone) {
  on_each_device([](Communicator& ranks) {
    if (!uses_fake_cudnn(device_execution(ranks))) GTEST_SKIP() << "only the double of cuDNN fails on request";
    for (const char* call : {"cudnnGetConvolutionForwardAlgorithm_v7", "cudnnGetConvolutionBackwardDataAlgorithm_v7",
                             "cudnnGetConvolutionBackwardFilterAlgorithm_v7"}) {
      inject_into_double(call, 0, 3000);
      expect_results_of_host<float>(ranks, AlgorithmChoice::kFixed, kGeometry, 3);
      restore_double();
    }
    inject_into_double("cudnnFindConvolutionForwardAlgorithmEx", 0, 3002);
    expect_results_of_host<float>(ranks, AlgorithmChoice::kMeasured, kGeometry, 3);
    restore_double();
  });
}

TEST(ConvolutionAlgorithms, ErrorsOfCudnnAreNamed) {
  on_each_device([](Communicator& ranks) {
    if (!uses_fake_cudnn(device_execution(ranks))) GTEST_SKIP() << "only the double of cuDNN fails on request";
    const auto message = [&](const char* call, int error, AlgorithmChoice choice) {
      inject_into_double(call, 1, error);
      std::string text = message_of<DeviceError>([&] { results_of(device_execution(ranks, {choice}), kGeometry, 1); });
      restore_double();
      return text;
    };
    EXPECT_THAT(message("cudnnConvolutionForward", 5000, AlgorithmChoice::kFixed),
                testing::AllOf(HasSubstr("cudnnConvolutionForward failed on CUDA device"),
                               HasSubstr("CUDNN_STATUS_EXECUTION_FAILED (5000)"),
                               HasSubstr("FARANDOLE_CUDNN_LIBRARY=off computes without cuDNN")));
    EXPECT_THAT(message("cudnnCreate", 1001, AlgorithmChoice::kFixed),
                HasSubstr("CUDNN_STATUS_NOT_INITIALIZED (1001): cuDNN cannot use this device or driver"));
    EXPECT_THAT(message("cudnnFindConvolutionBackwardDataAlgorithmEx", 4000, AlgorithmChoice::kMeasured),
                HasSubstr("the choice of an algorithm of cudnnConvolutionBackwardData failed"));
  });
}

}  // namespace
}  // namespace farandole::trainer::test
