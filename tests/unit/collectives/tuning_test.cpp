// SPDX-License-Identifier: Apache-2.0
// Tables of measured choices: reading, writing, checking, and selection by a table.
#include "farandole/collectives/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "farandole/core/error.h"
#include "selection/selection.h"

namespace farandole {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TuningTable sample() {
  TuningTable table;
  table.shape = {4, 1, "mpi"};
  table.version = "1.2.3";
  table.one_shot_bytes = 8192;
  table.slice_bytes = 131072;
  table.of(Collective::kAllreduce) = {
      {64, "vendor", 1, 0.25}, {1000, "shared_memory", 1, 1.5}, {70000, "double_tree", 7, 33}};
  table.of(Collective::kBarrier) = {{0, "dissemination", 0, 2}};
  return table;
}

/// The sample's JSON with one text replaced, which it must have.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = sample().to_json();
  const std::size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return text.replace(place, from.size(), to);
}

std::string validation_error(const std::string& text) {
  try {
    TuningTable::parse(text, "some/file");
  } catch (const DataError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(TuningTable, ParsesItsOwnJson) {
  const TuningTable table = sample();
  const TuningTable back = TuningTable::parse(table.to_json(), "some/file");
  EXPECT_EQ(back.file, "some/file");
  EXPECT_EQ(back.shape, table.shape);
  EXPECT_EQ(back.version, "1.2.3");
  EXPECT_EQ(back.one_shot_bytes, 8192U);
  EXPECT_EQ(back.slice_bytes, 131072U);
  EXPECT_EQ(back.to_json(), table.to_json());
  ASSERT_EQ(back.of(Collective::kAllreduce).size(), 3U);
  const TuningTable::Entry& entry = back.of(Collective::kAllreduce)[2];
  EXPECT_EQ(entry.up_to_bytes, 70000U);
  EXPECT_EQ(entry.algorithm, "double_tree");
  EXPECT_EQ(entry.segments, 7);
  EXPECT_DOUBLE_EQ(entry.time_us, 33);
  TuningTable empty;
  empty.shape.transport = "inproc";
  EXPECT_EQ(TuningTable::parse(empty.to_json(), "f").to_json(), empty.to_json());
}

/// The sample with what was measured on devices of hosts.
TuningTable device_sample() {
  TuningTable table;
  table.shape = {4, 2, "inproc"};
  table.of(Collective::kAllreduce, MemoryKind::kCuda) = {{64, "ring", 3, 1}, {70000, "hierarchical", 1, 9}};
  table.of(Collective::kAlltoall, MemoryKind::kCuda) = {{500, "hierarchical", 1, 2}, {1000, "vendor", 1, 3}};
  return table;
}

TEST(TuningTable, DeviceMemoryHasSeparateEntries) {
  TuningTable table = device_sample();
  EXPECT_EQ(table.to_json().find("\"collectives\""), std::string::npos);
  TuningTable back = TuningTable::parse(table.to_json(), "f");
  EXPECT_EQ(back.to_json(), table.to_json());
  EXPECT_TRUE(back.of(Collective::kAllreduce).empty());
  ASSERT_EQ(back.of(Collective::kAllreduce, MemoryKind::kCuda).size(), 2U);
  EXPECT_EQ(back.find(Collective::kAlltoall, 501, MemoryKind::kCuda)->algorithm, "vendor");
  table.of(Collective::kAllreduce) = {{8, "ring", 1, 1}};
  EXPECT_EQ(TuningTable::parse(table.to_json(), "f").to_json(), table.to_json());
}

TEST(TuningTable, EntriesMustSuitTheKindOfMemory) {
  const auto refused = [](Collective collective, MemoryKind memory, const std::string& algorithm) {
    TuningTable table = device_sample();
    table.of(collective, memory) = {{64, algorithm, 1, 1}};
    return validation_error(table.to_json());
  };
  EXPECT_EQ(refused(Collective::kAllreduce, MemoryKind::kCuda, "vendor"), "accepted");
  EXPECT_THAT(refused(Collective::kAllreduce, MemoryKind::kCuda, "shared_memory"),
              HasSubstr("device memory, allreduce, entry 1 (up to 64 bytes, shared_memory): shared_memory works on "
                        "host memory only"));
  EXPECT_THAT(refused(Collective::kAllgather, MemoryKind::kHost, "vendor"),
              HasSubstr("allgather, entry 1 (up to 64 bytes, vendor): vendor works on device memory only"));
  EXPECT_THAT(refused(Collective::kBarrier, MemoryKind::kCuda, "dissemination"), HasSubstr("a barrier has no memory"));
  TuningTable table = device_sample();
  table.shape.hosts = 1;
  EXPECT_THAT(validation_error(table.to_json()), HasSubstr("hierarchical needs several hosts"));
}

TEST(TuningTable, InvalidTableIsRefusedWithFileAndPlace) {
  EXPECT_THAT(validation_error(""), AllOf(HasSubstr("some/file: line 1"), HasSubstr("the file is empty")));
  EXPECT_THAT(validation_error("{\n \"format\": 1,\n oops}"), HasSubstr("some/file: line 3: this is not JSON"));
  EXPECT_THAT(validation_error("[]"), HasSubstr("the table is []; it must be an object"));
  EXPECT_THAT(validation_error("{}"), HasSubstr("the table has no format"));
  EXPECT_THAT(validation_error(changed("\"format\": 1", "\"format\": 2")),
              HasSubstr("the table, format is 2; it must be 1"));
  EXPECT_THAT(validation_error(changed("\"collectives\"", "\"colectives\"")),
              HasSubstr("the table has 'colectives' (did you mean 'collectives'?); known are format"));
  EXPECT_THAT(validation_error(changed("\"ranks\":4", "\"ranks\":-4")),
              HasSubstr("measured_on, ranks is -4; it must be a whole"));
  EXPECT_THAT(validation_error(changed("\"ranks\":4", "\"ranks\":0")),
              HasSubstr("measured_on, ranks is 0; it must be 1"));
  EXPECT_THAT(validation_error(changed("\"hosts\":1", "\"hosts\":5")),
              HasSubstr("measured_on, hosts is 5; it must be 1 … 4"));
  EXPECT_THAT(validation_error(changed("\"transport\":\"mpi\"", "\"transport\":3")),
              HasSubstr("transport is 3; it must be a text"));
  EXPECT_THAT(validation_error(changed("\"slice_bytes\":131072", "\"slice_bytes\":1")),
              HasSubstr("slice_bytes is 1; it must be bytes from 4KiB to 64MiB"));
  EXPECT_THAT(validation_error(changed("\"barrier\": [", "\"barier\": [")),
              HasSubstr("has 'barier' (did you mean 'barrier'?)"));
  EXPECT_THAT(validation_error(changed("\"barrier\": [", "\"gather\": 1, \"barrier\": [")),
              HasSubstr("gather is 1; it must be a list"));
}

TEST(TuningTable, WrongEntriesAreRefusedByNumber) {
  EXPECT_THAT(validation_error(changed("double_tree", "dubble_tree")),
              AllOf(HasSubstr("some/file: allreduce, entry 3 (up to 70000 bytes, dubble_tree): there is no algorithm"),
                    HasSubstr("did you mean 'double_tree'?"), HasSubstr("vendor")));
  EXPECT_THAT(validation_error(changed("dissemination", "vendor")), HasSubstr("barrier, entry 1"));
  EXPECT_THAT(
      validation_error(changed("70000", "1000")),
      HasSubstr("entry 3 (up to 1000 bytes, double_tree): up_to_bytes must be more than in the entry before, 1000"));
  EXPECT_THAT(validation_error(changed("70000", "-1")), HasSubstr("allreduce, entry 3, up_to_bytes is -1"));
  EXPECT_THAT(validation_error(changed("70000", "1e30")), HasSubstr("up_to_bytes is 1e+30; it must be a whole number"));
  EXPECT_THAT(validation_error(changed("\"segments\":7", "\"segments\":1025")),
              HasSubstr("segments is 1025; it must be 0"));
  EXPECT_THAT(validation_error(changed("\"segments\":7,", "")), HasSubstr("allreduce, entry 3 has no segments"));
  EXPECT_THAT(validation_error(changed("\"segments\":7", "\"segmnts\":7")), HasSubstr("did you mean 'segments'?"));
  EXPECT_THAT(validation_error(changed("33.0", "-33.0")), HasSubstr("time_us is -33"));
  EXPECT_THAT(validation_error(changed("33.0", "\"long\"")), HasSubstr("time_us is \"long\"; it must be a number"));
}

TEST(TuningTable, AlgorithmsMustSuitTheShape) {
  EXPECT_THAT(validation_error(changed("\"transport\":\"mpi\"", "\"transport\":\"inproc\"")),
              HasSubstr("vendor needs the transport mpi"));
  EXPECT_THAT(validation_error(changed("\"hosts\":1", "\"hosts\":2")),
              HasSubstr("shared_memory needs several ranks, all on one host"));
  EXPECT_THAT(validation_error(changed("double_tree", "hierarchical")), HasSubstr("hierarchical needs several hosts"));
  TuningTable table = sample();
  table.shape.ranks = 6;
  table.of(Collective::kAllreduce)[2].algorithm = "halving_doubling";
  EXPECT_THAT(validation_error(table.to_json()), HasSubstr("halving_doubling does not work for 6 ranks"));
  EXPECT_THROW(table.check(), InvalidArgument);
}

class ChoiceFromATable : public testing::Test {
 protected:
  ChoiceFromATable() {
    query_.size = 4;
    query_.shares_memory = true;
    query_.table = &table_;
  }
  Selection selected(std::size_t bytes) {
    query_.bytes = bytes;
    return select(query_, settings_);
  }
  std::string name(std::size_t bytes) { return std::string(selected(bytes).name()); }

  const TuningTable table_ = sample();
  SelectionQuery query_;
  Settings settings_;
};

TEST_F(ChoiceFromATable, IsTheFirstEntryThatReachesTheSize) {
  EXPECT_EQ(name(0), "vendor");
  EXPECT_EQ(name(64), "vendor");
  EXPECT_EQ(name(65), "shared_memory");
  EXPECT_EQ(name(1000), "shared_memory");
  EXPECT_EQ(name(1001), "double_tree");
  EXPECT_EQ(selected(70000).segments, 7);
  EXPECT_EQ(name(70001), "shared_memory") << "above the last entry: as without a table";
  query_.collective = Collective::kReduce;
  EXPECT_EQ(name(10), "shared_memory") << "no entry: as without a table";
}

TEST_F(ChoiceFromATable, DependsOnTheKindOfMemory) {
  const TuningTable table = device_sample();
  query_.table = &table;
  EXPECT_EQ(name(64), "shared_memory") << "the table has nothing for host memory";
  query_.memory = MemoryKind::kCuda;
  query_.hosts = 2;
  EXPECT_EQ(name(64), "ring");
  EXPECT_EQ(selected(64).segments, 3);
  EXPECT_EQ(name(65), "hierarchical");
  EXPECT_EQ(name(70001), "vendor") << "above the last entry: as without a table";
  query_.collective = Collective::kAlltoall;
  EXPECT_EQ(name(500), "hierarchical");
  EXPECT_EQ(name(1000), "vendor");
  query_.vendor_agrees = false;
  EXPECT_EQ(name(1000), "pairwise") << "an entry that cannot run is passed over";
  EXPECT_EQ(name(kUnknownBytes), "pairwise") << "no rank knows the size";
}

TEST_F(ChoiceFromATable, CallerAndSettingsOverrideTheTable) {
  query_.segments = 3;
  EXPECT_EQ(selected(70000).segments, 3);
  settings_.collectives.allreduce = "ring";
  EXPECT_EQ(name(10), "ring");
  query_.forced = "circulant";
  EXPECT_EQ(name(10), "circulant");
  query_.forced = "auto";
  EXPECT_EQ(name(10), "vendor");
}

TEST_F(ChoiceFromATable, SkipsEntriesThatCannotRun) {
  query_.shares_memory = false;
  EXPECT_EQ(measured_entry(query_), &table_.of(Collective::kAllreduce)[0]);
  query_.bytes = 1000;
  EXPECT_EQ(measured_entry(query_), nullptr);
  EXPECT_EQ(name(1000), "exchange");
  query_.shares_memory = true;
  query_.vendor_agrees = false;
  EXPECT_EQ(name(10), "shared_memory");
}

TEST(VendorAgrees, OnlyIfTheResultsAreEqual) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllReduceOps) {
      const bool is_narrow = !is_floating_point(dtype) && size_in_bytes(dtype) <= 2;
      const bool orders = op == ReduceOp::kMin || op == ReduceOp::kMax;
      const bool agrees = is_bitwise(op) ? is_defined(op, dtype) && dtype != DType::kBool : !is_narrow && !orders;
      EXPECT_EQ(vendor_agrees(dtype, op), agrees) << farandole::name(dtype) << " " << farandole::name(op);
    }
  }
}

TEST_F(ChoiceFromATable, ZeroSegmentsMeansComputedFromTheSize) {
  TuningTable table = sample();
  table.of(Collective::kAllreduce) = {{1 << 30, "ring", 0, 1}};
  query_.table = &table;
  EXPECT_EQ(selected(4 << 20).segments, 4);
  settings_.collectives.segment_bytes = 64 << 10;
  EXPECT_EQ(selected(4 << 20).segments, 16);
}

TEST_F(ChoiceFromATable, SearchIsNeededFromTheFirstOtherEntryOn) {
  constexpr std::size_t kAnySize = ~std::size_t{0};
  EXPECT_EQ(select_short_vectors(query_, settings_).below_bytes, 0U);
  TuningTable table = sample();
  table.of(Collective::kAllreduce)[0].algorithm = "shared_memory";
  query_.table = &table;
  EXPECT_EQ(select_short_vectors(query_, settings_).below_bytes, 1001U);
  table.of(Collective::kAllreduce).pop_back();
  EXPECT_EQ(select_short_vectors(query_, settings_).below_bytes, kAnySize);
  query_.table = nullptr;
  EXPECT_EQ(select_short_vectors(query_, settings_).below_bytes, kAnySize);
  settings_.collectives.allreduce = "ring";
  EXPECT_EQ(select_short_vectors(query_, settings_).below_bytes, 0U);
  settings_.collectives.allreduce = "shared_memory";
  EXPECT_EQ(select_short_vectors(query_, settings_).below_bytes, kAnySize);
  query_.shares_memory = false;
  EXPECT_EQ(select_short_vectors(query_, settings_).below_bytes, 0U);
}

}  // namespace
}  // namespace farandole
