// SPDX-License-Identifier: Apache-2.0
// The graphs of attention, given to a real cuDNN without a device: cuDNN makes plans for a described device, so these
// tests show that it accepts the graphs, not what they compute. Skipped without cuDNN.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "attention_graphs.h"
#include "cudnn_attention.h"

namespace farandole::trainer::cuda {
namespace {

/// A device as cuDNN describes it to itself.
struct DescribedDevice {
  const char* name;
  int capability, processors, shared_bytes;
};
constexpr DescribedDevice kA100{"NVIDIA A100-SXM4-80GB", 800, 108, 166912};
constexpr DescribedDevice kH100{"NVIDIA H100 80GB HBM3", 900, 132, 232448};

std::string json_of(const DescribedDevice& device) {
  return fmt::format(
      R"({{"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
      R"("multiProcessorCount":{},"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":{},)"
      R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,)"
      R"("maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"totalGlobalMem":85899345920,)"
      R"("smClockRateKHz":1410000,"memClockRateKHz":1593000,"l2CacheSize":41943040,"cudaDeviceId":0,"deviceVer":{},)"
      R"("driverVer":13000,"deviceName":"{}"}})",
      device.processors, device.shared_bytes, device.capability, device.name);
}

class CudnnGraphs : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(dlopen(FARANDOLE_DRIVER_WITHOUT_DEVICES, RTLD_NOW), nullptr) << dlerror();
    constexpr int kNewestDriver = 99000;
    library_ = load_cudnn("", kNewestDriver);
    if (!library_.why_not.empty()) GTEST_SKIP() << library_.why_not;
    if (library_.number < CudnnAttention::kOldestVersion) GTEST_SKIP() << "cuDNN " << library_.version;
  }

  /// Returns "" if cuDNN makes a plan, else its reason.
  template <class MakeGraph>
  std::string refusal(const DescribedDevice& device, bool is_deterministic, const MakeGraph& make_graph) {
    const std::string json = json_of(device);
    GraphDescriptor description(library_.api, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    description.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, json.size(), json.data());
    description.finalize();
    try {
      make_graph().plan({nullptr, description.get()}, {is_deterministic});
      return "";
    } catch (const GraphRefused& refused) {
      return refused.what();
    }
  }
  std::string refusal_of_forward(const DescribedDevice& device, const AttentionForm& form, cudnnDataType_t type) {
    return refusal(device, true, [&] { return attention_graph(library_.api, form, type); });
  }
  std::string refusal_of_backward(const DescribedDevice& device, const AttentionForm& form, cudnnDataType_t type,
                                  QuerySums sums) {
    return refusal(device, sums == QuerySums::kOrdered,
                   [&] { return attention_gradient_graph(library_.api, form, type, sums); });
  }

  void expect_plans(const DescribedDevice& device, const AttentionForm& form, cudnnDataType_t type) {
    SCOPED_TRACE(fmt::format("{}, type {}, {} samples of {} positions, {} heads of {} units, causal: {}", device.name,
                             type, form.samples, form.length, form.heads, form.head_units, form.causal));
    EXPECT_EQ(refusal_of_forward(device, form, type), "");
    EXPECT_EQ(refusal_of_backward(device, form, type, QuerySums::kAtomic), "");
    EXPECT_EQ(refusal_of_backward(device, form, type, QuerySums::kOrdered), "");
  }

  CudnnLibrary library_;
};

TEST_F(CudnnGraphs, OfAttentionHavePlans) {
  for (const cudnnDataType_t type : {CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16}) {
    for (const bool causal : {false, true}) expect_plans(kH100, {4, 8, 256, 64, causal}, type);
  }
  expect_plans(kH100, {3, 2, 65, 128, true}, CUDNN_DATA_BFLOAT16);
  expect_plans(kA100, {3, 2, 65, 8, true}, CUDNN_DATA_BFLOAT16);
}

/// The forms of trainer_attention_test, and the ends of the ranges.
TEST_F(CudnnGraphs, OfSmallAndLargeFormsHavePlans) {
  for (const AttentionForm& form : {AttentionForm{1, 1, 2, 8, false},
                                    {2, 3, 12, 16, true},
                                    {2, 3, 12, 16, false},
                                    {2, 3, 1, 16, true},
                                    {2, 2, 64, 256, true}}) {
    expect_plans(kH100, form, CUDNN_DATA_BFLOAT16);
  }
}

TEST_F(CudnnGraphs, OfOtherHeadsAreRefusedWithAReason) {
  EXPECT_NE(refusal_of_forward(kH100, {3, 2, 64, 20, true}, CUDNN_DATA_HALF), "");
  // The bound of CudnnAttention::fuses on devices other than those of capability 9.x.
  EXPECT_NE(refusal_of_backward(kA100, {2, 2, 64, 256, true}, CUDNN_DATA_BFLOAT16, QuerySums::kAtomic), "");
}

}  // namespace
}  // namespace farandole::trainer::cuda
