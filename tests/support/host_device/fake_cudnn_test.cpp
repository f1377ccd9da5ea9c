// SPDX-License-Identifier: Apache-2.0
// Tests of the double of cuDNN: what it refuses, and the misuse that it reports.
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "cudnn_api.h"
#include "fake_tables.h"

namespace farandole::fake {
namespace {

// NOLINTBEGIN(google-build-using-namespace): cuDNN's names
using namespace trainer::cuda;
// NOLINTEND(google-build-using-namespace)

}  // namespace

// NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses): cuDNN's names
#define FARANDOLE_DECLARE_CUDNN(result, name, parameters) result name parameters;
extern "C" {
FARANDOLE_CUDNN_FUNCTIONS(FARANDOLE_DECLARE_CUDNN)
}
// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)

namespace {

using testing::HasSubstr;

constexpr cudnnConvolutionAlgo_t kWithWorkspace = 1, kWithoutWorkspace = 0;

/// A convolution 1x1 of an image of one pixel, with descriptors of its own.
class CudnnMisuse : public FakeDeviceTest {
 protected:
  void SetUp() override {
    FakeDeviceTest::SetUp();
    stream_ = make_stream();
    input_.emplace(std::vector<float>{3});
    weight_.emplace(std::vector<float>{5});
    output_.emplace(1);
    EXPECT_EQ(cudnnCreate(&handle_), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnSetStream(handle_, stream_), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnCreateTensorDescriptor(&pixel_), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnSetTensor4dDescriptor(pixel_, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 1, 1, 1, 1),
              CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnCreateFilterDescriptor(&filters_), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnSetFilter4dDescriptor(filters_, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC, 1, 1, 1, 1),
              CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnCreateConvolutionDescriptor(&convolution_), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(
        cudnnSetConvolution2dDescriptor(convolution_, 0, 0, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
        CUDNN_STATUS_SUCCESS);
  }

  cudnnStatus_t forward(const void* input, cudnnConvolutionAlgo_t algorithm = kWithoutWorkspace) {
    const float one = 1, zero = 0;
    const cudnnStatus_t status =
        cudnnConvolutionForward(handle_, &one, pixel_, input, filters_, weight_->data(), convolution_, algorithm,
                                nullptr, 0, &zero, pixel_, output_->data());
    EXPECT_EQ(cuda_api().cuStreamSynchronize(stream_), CUDA_SUCCESS);
    return status;
  }
  cudnnStatus_t forward() { return forward(input_->data()); }

  CUstream stream_ = nullptr;
  std::optional<Vector<float>> input_, weight_, output_;
  cudnnHandle_t handle_ = nullptr;
  cudnnTensorDescriptor_t pixel_ = nullptr;
  cudnnFilterDescriptor_t filters_ = nullptr;
  cudnnConvolutionDescriptor_t convolution_ = nullptr;
};

TEST_F(CudnnMisuse, NoneIsReportedOfARightCall) {
  EXPECT_EQ(forward(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(output_->values(stream_), std::vector<float>{15});
}

TEST_F(CudnnMisuse, ADestroyedDescriptor) {
  EXPECT_EQ(cudnnDestroyFilterDescriptor(filters_), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(forward(), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnDestroyFilterDescriptor(filters_), CUDNN_STATUS_BAD_PARAM);
  EXPECT_THAT(reports(), AllOf(HasSubstr("cudnnConvolutionForward: a handle or descriptor of another kind"),
                               HasSubstr("cudnnDestroyFilterDescriptor: a handle or descriptor of another kind")));
}

TEST_F(CudnnMisuse, AHandleOfAnotherDevice) {
  use_device(1);
  const float one = 1, zero = 0;
  EXPECT_EQ(cudnnConvolutionForward(handle_, &one, pixel_, input_->data(), filters_, weight_->data(), convolution_,
                                    kWithoutWorkspace, nullptr, 0, &zero, pixel_, output_->data()),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_THAT(reports(), HasSubstr("the handle is of device 0, which is not current"));
  use_device(0);
}

TEST_F(CudnnMisuse, MemoryOfTheHost) {
  const float pixel = 1;
  EXPECT_EQ(forward(&pixel), CUDNN_STATUS_EXECUTION_FAILED);
  EXPECT_THAT(reports(), HasSubstr("cudnnConvolutionForward"));
}

TEST_F(CudnnMisuse, ShapesThatDoNotFit) {
  EXPECT_EQ(cudnnSetFilter4dDescriptor(filters_, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC, 1, 2, 1, 1),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(forward(), CUDNN_STATUS_BAD_PARAM);
}

TEST_F(CudnnMisuse, TooSmallAWorkspace) {
  EXPECT_EQ(forward(input_->data(), kWithWorkspace), CUDNN_STATUS_BAD_PARAM);
}

TEST_F(CudnnMisuse, AMeasurementDuringACapture) {
  constexpr int kGlobalMode = 0;
  EXPECT_EQ(cuda_api().cuStreamBeginCapture(stream_, kGlobalMode), CUDA_SUCCESS);
  std::array<cudnnConvolutionAlgoPerf_t, 8> algorithms{};
  int count = 0;
  cudnnFindConvolutionForwardAlgorithmEx(handle_, pixel_, input_->data(), filters_, weight_->data(), convolution_,
                                         pixel_, output_->data(), 8, &count, algorithms.data(), nullptr, 0);
  EXPECT_THAT(reports(), HasSubstr("cudnnFindConvolutionForwardAlgorithmEx, which waits for the device, while"));
  CUgraph graph = nullptr;
  EXPECT_EQ(cuda_api().cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(CudnnMisuse, TheFirstAlgorithmsOffered) {
  std::array<cudnnConvolutionAlgoPerf_t, 8> algorithms{};
  int count = 0;
  EXPECT_EQ(cudnnGetConvolutionForwardAlgorithm_v7(handle_, pixel_, filters_, convolution_, pixel_, 8, &count,
                                                   algorithms.data()),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(count, 5);
  EXPECT_EQ(algorithms[0].status, CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(algorithms[1].determinism, CUDNN_NON_DETERMINISTIC);
  EXPECT_GT(algorithms[2].memory, std::size_t{1} << 40);
}

}  // namespace
}  // namespace farandole::fake
