// SPDX-License-Identifier: Apache-2.0
// Compatible versions of driver, kernels and NCCL, and the errors for incompatible versions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "cuda/cuda_error.h"
#include "cuda/kernel_image.h"
#include "cuda/nccl_support.h"
#include "fake_api.h"
#include "farandole/core/error.h"
#include "message_of.h"

namespace farandole::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::array<KernelImage, 2> images(std::size_t cuda13_bytes, std::size_t cuda12_bytes) {
  return {kernel_image("13", cuda13_bytes, 13010), kernel_image("12", cuda12_bytes, 12090)};
}

TEST(Versions, TheDriverDecidesWhichKernelsAreLoaded) {
  const auto both = images(1, 1);
  EXPECT_EQ(image_for(both, 13000), both.data());
  EXPECT_EQ(image_for(both, 13020), both.data());
  EXPECT_EQ(image_for(both, 12090), &both[1]);
  EXPECT_EQ(image_for(both, 11080), nullptr);
  const auto new_only = images(1, 0);
  EXPECT_EQ(image_for(new_only, 13000), new_only.data());
  EXPECT_EQ(image_for(new_only, 12090), nullptr);
  const auto old_only = images(0, 1);
  EXPECT_EQ(image_for(old_only, 13000), &old_only[1]);
  EXPECT_EQ(image_for(images(0, 0), 13000), nullptr);
  // A build whose only nvcc is of CUDA 12.
  const std::array by_cuda12{kernel_image("12", 1, 12080), kernel_image("", 0, 0)};
  EXPECT_EQ(image_for(by_cuda12, 12020), by_cuda12.data());
  EXPECT_EQ(image_for(by_cuda12, 13000), by_cuda12.data());
  EXPECT_EQ(image_for(by_cuda12, 11080), nullptr);
}

TEST(Versions, ManyTasksNeedAToolkitThatAllItsDriversRun) {
  EXPECT_TRUE(kernel_image("13", 1, 13000).has_large_variants);
  EXPECT_FALSE(kernel_image("12", 1, 12090).has_large_variants) << "drivers of CUDA 12.0 load it, too";
}

TEST(Versions, OldDriverErrorNamesTheNeededVersion) {
  EXPECT_THAT(why_no_image(images(1, 0), 12090),
              AllOf(HasSubstr("CUDA 12.9"), HasSubstr("CUDA 13.0 (driver 580 or newer)"),
                    HasSubstr("update the driver"), HasSubstr("nvcc of an older CUDA")));
  EXPECT_THAT(why_no_image(images(1, 1), 11080), AllOf(HasSubstr("CUDA 11.8"), HasSubstr("CUDA 12.0 (driver 525"),
                                                       HasSubstr("update the driver"), Not(HasSubstr("nvcc"))));
  EXPECT_THAT(why_no_image(images(0, 0), 13000), AllOf(HasSubstr("no kernels"), HasSubstr("FARANDOLE_WITH_CUDA=ON")));
}

TEST(Versions, NcclVersionsArePrintedWithDots) {
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
  EXPECT_EQ(nccl_version_text(21903), "2.19.3");
  EXPECT_EQ(nccl_version_text(2804), "2.8.4");
}

TEST(Versions, KnownProblemsOfNcclAreReported) {
  for (const int good : {0, 22907, 23003, 23102, 23202}) EXPECT_EQ(nccl_warning(good), "") << good;
  EXPECT_THAT(nccl_warning(23007), AllOf(HasSubstr("NCCL 2.30.7"), HasSubstr("hang"), HasSubstr("2.31.2 or newer")));
  EXPECT_NE(nccl_warning(23004), "");
  EXPECT_NE(nccl_warning(23101), "");
}

TEST(Versions, NcclReducesAsReduceDoesOrNotAtAll) {
  EXPECT_EQ(nccl_reduction(DType::kI16, ReduceOp::kSum), std::nullopt);
  EXPECT_EQ(nccl_reduction(DType::kU16, ReduceOp::kMax), std::nullopt);
  for (const ReduceOp op : kAllReduceOps) {
    for (const DType dtype : kAllDTypes) {
      if (dtype == DType::kI16 || dtype == DType::kU16) continue;
      if (is_bitwise(op)) continue;
      ASSERT_TRUE(nccl_reduction(dtype, op)) << name(dtype) << " " << name(op);
    }
  }
  EXPECT_EQ(nccl_reduction(DType::kF32, ReduceOp::kAverage)->op, ncclSum);
  EXPECT_EQ(nccl_reduction(DType::kF32, ReduceOp::kAverage)->type, ncclFloat32);
  EXPECT_EQ(nccl_reduction(DType::kBF16, ReduceOp::kProduct)->op, ncclProd);
  EXPECT_EQ(nccl_reduction(DType::kBF16, ReduceOp::kProduct)->type, ncclBfloat16);
  EXPECT_EQ(nccl_reduction(DType::kI64, ReduceOp::kMin)->op, ncclMin);
  EXPECT_EQ(nccl_reduction(DType::kU32, ReduceOp::kSum)->type, ncclUint32);
  EXPECT_EQ(nccl_reduction(DType::kU64, ReduceOp::kMax)->type, ncclUint64);
  EXPECT_EQ(nccl_reduction(DType::kI8, ReduceOp::kMax)->type, ncclInt8);
  EXPECT_EQ(nccl_reduction(DType::kBool, ReduceOp::kSum)->op, ncclMax) << "or";
  EXPECT_EQ(nccl_reduction(DType::kBool, ReduceOp::kMax)->op, ncclMax);
  EXPECT_EQ(nccl_reduction(DType::kBool, ReduceOp::kProduct)->op, ncclMin) << "and";
  EXPECT_EQ(nccl_reduction(DType::kBool, ReduceOp::kMin)->op, ncclMin);
  EXPECT_EQ(nccl_reduction(DType::kBool, ReduceOp::kMin)->type, ncclUint8);
  for (const ReduceOp op : {ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor}) {
    EXPECT_EQ(nccl_reduction(DType::kU32, op), std::nullopt) << name(op);
  }
  EXPECT_EQ(nccl_reduction(DType::kBool, ReduceOp::kBitAnd)->op, ncclMin);
  EXPECT_EQ(nccl_reduction(DType::kBool, ReduceOp::kBitOr)->op, ncclMax);
  EXPECT_EQ(nccl_reduction(DType::kBool, ReduceOp::kBitXor), std::nullopt);
}

TEST(CudaErrors, NameFunctionDeviceAndRemedy) {
  const CudaApi api = fake_cuda();
  const std::string text = test::message_of<DeviceError>([&] { check(api, 700, "cuEventQuery", "CUDA device 3"); });
  EXPECT_THAT(text, AllOf(HasSubstr("cuEventQuery failed on CUDA device 3: CUDA_ERROR_ILLEGAL_ADDRESS (700): text of"),
                          HasSubstr("end it and start it again")));
  EXPECT_THAT(error_text(api, 1), Not(HasSubstr("start it again"))) << "the next call may succeed";
  EXPECT_THAT(error_text(api, 802), HasSubstr("nvidia-fabricmanager"));
  EXPECT_EQ(error_text(api, 4711), "CUDA error 4711") << "CUDA has no name for it";
  EXPECT_NO_THROW(check(api, CUDA_SUCCESS, "cuInit", "CUDA device 3"));
}

}  // namespace
}  // namespace farandole::cuda
