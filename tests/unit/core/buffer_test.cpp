// SPDX-License-Identifier: Apache-2.0
#include "farandole/core/buffer.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "sanitizers.h"

namespace farandole {
namespace {

TEST(Buffer, IsZeroedAndAligned) {
  for (const std::size_t count : {1U, 3U, 64U, 1000U}) {
    Buffer buffer(count, DType::kF32);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.view().data) % 64, 0U);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(buffer.as<float>()[i], 0.0F);
    buffer.as<float>()[count - 1] = 1.0F;
    EXPECT_EQ(buffer.count(), count);
    EXPECT_EQ(buffer.view().size_in_bytes(), 4 * count);
  }
}

TEST(Buffer, EmptyBufferHasNoMemory) {
  Buffer buffer(0, DType::kF64);
  EXPECT_EQ(buffer.view().data, nullptr);
  EXPECT_EQ(buffer.view().size_in_bytes(), 0U);
}

TEST(Buffer, MovesItsMemory) {
  Buffer source(8, DType::kI64);
  source.as<std::int64_t>()[7] = 42;
  const void* memory = source.view().data;
  const Buffer target = std::move(source);
  EXPECT_EQ(target.view().data, memory);
  EXPECT_EQ(static_cast<const std::int64_t*>(target.view().data)[7], 42);
}

TEST(Buffer, RefusesMoreThanTheAddressSpaceHolds) {
  EXPECT_THROW(Buffer(std::numeric_limits<std::size_t>::max(), DType::kU8), InvalidArgument);
  EXPECT_THROW(Buffer(std::size_t{1} << 61, DType::kF64), InvalidArgument) << "count * 8 wraps to zero";
}

TEST(Buffer, ThrowsBadAllocWhenThereIsTooLittleMemory) {
  if (test::kAddressSanitizer || test::kThreadSanitizer) {
    GTEST_SKIP() << "the sanitizer's allocator ends the program instead";
  }
  EXPECT_THROW(Buffer(std::size_t{1} << 58, DType::kF64), std::bad_alloc);
}

TEST(BufferView, ComesFromContiguousRanges) {
  std::vector<float> values(5);
  const std::array<Half, 3> halves{};
  const BufferView view = values;
  const ConstBufferView constant = halves;
  const ConstBufferView from_span = std::span<const float>(values);
  const ConstBufferView from_view = view;
  EXPECT_EQ(view.dtype, DType::kF32);
  EXPECT_EQ(constant.dtype, DType::kF16);
  EXPECT_EQ(constant.size_in_bytes(), 6U);
  EXPECT_EQ(from_span.data, values.data());
  EXPECT_EQ(from_view.count, 5U);
  EXPECT_EQ(view.part(2, 3).data, values.data() + 2);
  EXPECT_EQ(view.part(2, 3).count, 3U);
}

TEST(BufferView, KnowsWhereItsMemoryIs) {
  char memory[64];
  const MemorySpace device{MemoryKind::kCuda, 3};
  Buffer buffer(
      memory, 16, DType::kF32, [](void*) {}, device);
  EXPECT_EQ(buffer.space(), device);
  EXPECT_EQ(buffer.view().space, device);
  EXPECT_EQ(std::as_const(buffer).view().space, device);
  EXPECT_EQ(buffer.view().part(1, 2).space, device);
  EXPECT_EQ(ConstBufferView(buffer.view()).space, device);
  EXPECT_TRUE(Buffer(1, DType::kF32).view().space.is_host());
  EXPECT_EQ(describe(device), "memory of CUDA device 3");
  EXPECT_EQ(describe(MemorySpace{}), "host memory");
}

}  // namespace
}  // namespace farandole
