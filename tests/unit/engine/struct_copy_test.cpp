// SPDX-License-Identifier: Apache-2.0
// Structures passed by callers that were built with another version. `Next` imitates farandole_tensor of a later
// version.
#include "farandole/internal/struct_copy.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "farandole/engine.h"

namespace farandole {
namespace {

struct Next {
  farandole_tensor before;
  const char* added;
  std::uint64_t also_added;
};

/// `count` tensors as a caller makes them, whose dimensions are 10, 11, …
template <class Struct>
std::vector<Struct> callers_array(std::size_t count) {
  std::vector<Struct> tensors(count);
  for (std::size_t i = 0; i < count; ++i) {
    auto& tensor = reinterpret_cast<farandole_tensor&>(tensors[i]);
    tensor.struct_bytes = sizeof(Struct);
    tensor.dimensions = static_cast<std::int32_t>(10 + i);
    tensor.context = &tensor;
  }
  return tensors;
}

TEST(StructCopy, ANewerLibraryReadsTheArrayOfAnOlderCaller) {
  const auto tensors = callers_array<farandole_tensor>(3);
  const std::size_t bytes = struct_bytes_of(tensors.data());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Next seen = known_part<Next>(element_of(tensors.data(), bytes, i), bytes);
    EXPECT_EQ(seen.before.dimensions, static_cast<std::int32_t>(10 + i));
    EXPECT_EQ(seen.before.context, &tensors[i]);
    EXPECT_EQ(seen.added, nullptr);
    EXPECT_EQ(seen.also_added, 0U);
  }
}

TEST(StructCopy, AnOlderLibraryReadsTheArrayOfANewerCaller) {
  auto tensors = callers_array<Next>(3);
  for (Next& tensor : tensors) tensor.also_added = ~std::uint64_t{0};
  const std::size_t bytes = struct_bytes_of(tensors.data());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto seen = known_part<farandole_tensor>(element_of(tensors.data(), bytes, i), bytes);
    EXPECT_EQ(seen.dimensions, static_cast<std::int32_t>(10 + i));
    EXPECT_EQ(seen.context, &tensors[i].before);
  }
}

struct OlderCounters {
  std::size_t struct_bytes;
  std::uint64_t requests;
};
struct NewerCounters {
  std::size_t struct_bytes;
  std::uint64_t requests, negotiations;
};

TEST(StructCopy, AnOlderCallersStructureIsFilledUpToItsEnd) {
  std::array<OlderCounters, 2> callers{{{sizeof(OlderCounters), 0}, {7, 8}}};
  fill_known_part(callers.data(), NewerCounters{0, 3, 4});
  EXPECT_EQ(callers[0].struct_bytes, sizeof(OlderCounters));
  EXPECT_EQ(callers[0].requests, 3U);
  EXPECT_EQ(callers[1].struct_bytes, 7U);
}

TEST(StructCopy, UnknownFieldsStayUnchanged) {
  NewerCounters caller{sizeof(NewerCounters), 0, 99};
  fill_known_part(&caller, OlderCounters{0, 3});
  EXPECT_EQ(caller.struct_bytes, sizeof(NewerCounters));
  EXPECT_EQ(caller.requests, 3U);
  EXPECT_EQ(caller.negotiations, 99U);
}

TEST(StructCopy, NoSizeIsNone) {
  for (const std::size_t bytes : {std::size_t{0}, sizeof(NewerCounters) - 1, kMaxStructBytes + 8, ~std::size_t{0}}) {
    NewerCounters caller{bytes, 1, 2};
    fill_known_part(&caller, NewerCounters{0, 3, 4});
    EXPECT_EQ(caller.requests, 1U) << bytes;
    EXPECT_EQ(caller.negotiations, 2U) << bytes;
  }
  EXPECT_FALSE(can_be_struct_bytes<farandole_request>(0));
  EXPECT_FALSE(can_be_struct_bytes<farandole_request>(kMaxStructBytes + 1));
  EXPECT_FALSE(can_be_struct_bytes<farandole_request>(sizeof(farandole_request) - 1));
  EXPECT_TRUE(can_be_struct_bytes<farandole_request>(sizeof(farandole_request)));
}

/// Sizes and offsets that programs were compiled with: a change breaks them.
TEST(StructCopy, StructuresOfTheInterfaceKeepTheirLayout) {
  EXPECT_EQ(offsetof(farandole_tensor, memory), 80U);
  EXPECT_EQ(offsetof(farandole_tensor, stream), 88U);
  EXPECT_EQ(sizeof(farandole_tensor), 104U);
  EXPECT_EQ(offsetof(farandole_request, has_factors), 84U);
  EXPECT_EQ(sizeof(farandole_request), 88U);
  EXPECT_EQ(offsetof(farandole_result, completion_event), 48U);
  EXPECT_EQ(sizeof(farandole_result), 56U);
  EXPECT_EQ(sizeof(farandole_place), 48U);
  EXPECT_EQ(offsetof(farandole_counters, device_buckets), 80U);
  EXPECT_EQ(sizeof(farandole_counters), 104U);
  EXPECT_EQ(sizeof(farandole_init_options), 24U);
}

}  // namespace
}  // namespace farandole
