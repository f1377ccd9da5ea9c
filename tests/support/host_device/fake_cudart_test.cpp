// SPDX-License-Identifier: Apache-2.0
// Tests of the double of CUDA's runtime, as the examples use it.
#include "cuda_runtime.h"

#include <gtest/gtest.h>

#include <vector>

#include "fake_tables.h"

namespace farandole::fake {
namespace {

using ::testing::HasSubstr;

__global__ void add_number(int* values, int number, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) values[i] += number * count + i;
}

class FakeCudart : public FakeDeviceTest {
 protected:
  void SetUp() override {
    FakeDeviceTest::SetUp();
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    void* memory = nullptr;
    ASSERT_EQ(cudaMalloc(&memory, kCount * sizeof(int)), cudaSuccess);
    values_ = static_cast<int*>(memory);
  }
  void TearDown() override {
    EXPECT_EQ(cudaFree(values_), cudaSuccess);
    FakeDeviceTest::TearDown();
  }
  cudaError_t add(int* values, unsigned block = 64) const {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(2);
    config.blockDim = dim3(block);
    config.stream = stream_;
    return cudaLaunchKernelEx(&config, add_number, values, 3, kCount);
  }

  static constexpr int kCount = 100;
  cudaStream_t stream_ = nullptr;
  int* values_ = nullptr;
};

TEST_F(FakeCudart, KernelsAndCopiesRunInTheOrderOfTheirStream) {
  const std::vector<int> start(kCount, 5);
  std::vector<int> end(kCount);
  const std::size_t bytes = kCount * sizeof(int);
  EXPECT_EQ(cudaMemcpyAsync(values_, start.data(), bytes, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  EXPECT_EQ(add(values_), cudaSuccess);
  EXPECT_EQ(add(values_), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(end.data(), values_, bytes, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  for (int i = 0; i < kCount; ++i) ASSERT_EQ(end[static_cast<std::size_t>(i)], 5 + 2 * (3 * kCount + i)) << i;
}

TEST_F(FakeCudart, LaunchesThatCudaRefusesAreRefused) {
  EXPECT_EQ(add(values_, 2048), cudaErrorInvalidValue);
  EXPECT_STREQ(cudaGetErrorString(cudaErrorInvalidValue), "invalid argument");
}

TEST_F(FakeCudart, HostMemoryForAKernelIsAMisuse) {
  std::vector<int> host(kCount);
  EXPECT_EQ(add(host.data()), cudaErrorInvalidValue);
  EXPECT_THAT(reports(), HasSubstr("is no memory of a device"));
}

TEST_F(FakeCudart, AStreamThatWasDestroyedIsAMisuse) {
  EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  EXPECT_EQ(add(values_), cudaErrorInvalidValue);
  EXPECT_THAT(reports(), HasSubstr("cudaLaunchKernelEx"));
  EXPECT_NE(cudaStreamDestroy(stream_), cudaSuccess);
  EXPECT_THAT(reports(), HasSubstr("cuStreamDestroy"));
}

}  // namespace
}  // namespace farandole::fake
