// SPDX-License-Identifier: Apache-2.0
// CallOptions: every field with every collective.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/collectives/algorithms.h"
#include "farandole/core/error.h"
#include "farandole/internal/communicator_access.h"
#include "groups.h"
#include "message_of.h"

namespace farandole::test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

/// One collective with equal parts and root 0; `all` has `each` elements for each rank.
struct TrialCall {
  Communicator& ranks;
  std::vector<float> part = std::vector<float>(2, 1.0F);
  std::vector<float> all = std::vector<float>(2 * static_cast<std::size_t>(ranks.size()), 1.0F);
  std::vector<float> moved = all;

  void run(Collective collective, const CallOptions& options) {
    switch (collective) {
      case Collective::kAllreduce:
        return ranks.allreduce(all, moved, ReduceOp::kSum, options);
      case Collective::kBroadcast:
        return ranks.broadcast(all, 0, options);
      case Collective::kReduce:
        return ranks.reduce(all, moved, ReduceOp::kSum, 0, options);
      case Collective::kAllgather:
        return ranks.allgather(part, all, {}, options);
      case Collective::kReduceScatter:
        return ranks.reduce_scatter(all, part, ReduceOp::kSum, {}, options);
      case Collective::kGather:
        return ranks.gather(part, all, 0, {}, options);
      case Collective::kScatter:
        return ranks.scatter(all, part, 0, {}, options);
      case Collective::kAlltoall:
        return ranks.alltoall(all, moved, {}, {}, options);
      case Collective::kBarrier:
        return ranks.barrier(options);
    }
  }
};

/// One field of CallOptions, which collectives use it, in the order of Collective, and a value that is not the default.
struct OptionCase {
  std::string field;
  std::string used_by;
  CallOptions set;
};
std::vector<OptionCase> option_cases() {
  CallOptions streaming;
  streaming.stream = StreamView(nullptr, {MemoryKind::kCuda, 0});
  return {{"prescale", "allreduce, reduce, reduce_scatter", {.prescale = 2.0}},
          {"postscale", "allreduce, reduce, reduce_scatter", {.postscale = 0.5}},
          {"algorithm",
           "allreduce, broadcast, reduce, allgather, reduce_scatter, gather, scatter, alltoall, barrier",
           {.algorithm = "rign"}},
          {"segments", "allreduce, broadcast, reduce, allgather, reduce_scatter", {.segments = 3}},
          {"stream", "allreduce, broadcast, reduce, allgather, reduce_scatter, gather, scatter, alltoall", streaming}};
}

bool uses(const OptionCase& option, Collective collective) {
  return fmt::format(", {},", option.used_by).find(fmt::format(", {},", name(collective))) != std::string::npos;
}

template <class Check>
void for_each_collective(const Check& check) {
  for (int i = 0; i < kCollectiveCount; ++i) check(static_cast<Collective>(i));
}

TEST(CallOptions, UnusedFieldIsInvalidHereAndAMismatchElsewhere) {
  for_each_group({2, 3}, [](Communicator& ranks) {
    TrialCall call{ranks};
    for (const OptionCase& option : option_cases()) {
      for_each_collective([&](Collective collective) {
        if (uses(option, collective)) return;
        SCOPED_TRACE(fmt::format("{} of {}", option.field, name(collective)));
        if (ranks.rank() == 0) {
          EXPECT_THAT(message_of<InvalidArgument>([&] { call.run(collective, option.set); }),
                      AllOf(HasSubstr(std::string(name(collective))), HasSubstr(fmt::format("`{}`", option.field)),
                            HasSubstr(option.used_by)));
        } else if (internals(ranks).settings().collectives.check != "off") {
          message_of<Mismatch>([&] { call.run(collective, {}); });
        }
        call.run(collective, {});
      });
    }
  });
}

TEST(CallOptions, UsedFieldIsAcceptedOrItsValueIsNamed) {
  for_each_group({1, 2, 3}, [](Communicator& ranks) {
    TrialCall call{ranks};
    for (const OptionCase& option : option_cases()) {
      for_each_collective([&](Collective collective) {
        if (!uses(option, collective)) return;
        SCOPED_TRACE(fmt::format("{} of {}", option.field, name(collective)));
        if (option.field == "algorithm") {
          EXPECT_THAT(message_of<InvalidArgument>([&] { call.run(collective, option.set); }), HasSubstr("rign"));
        } else if (option.field == "stream") {
          // The buffers are in host memory.
          EXPECT_THAT(message_of<InvalidArgument>([&] { call.run(collective, option.set); }), HasSubstr("stream"));
        } else {
          EXPECT_NO_THROW(call.run(collective, option.set));
        }
        call.run(collective, {});
      });
    }
  });
}

TEST(CallOptions, NumbersOfSegmentsOutOfRangeAreInvalid) {
  for_each_group({1, 2}, [](Communicator& ranks) {
    TrialCall call{ranks};
    for (const int segments : {-1, kMaxSegments + 1, std::numeric_limits<int>::max()}) {
      EXPECT_THAT(message_of<InvalidArgument>([&] { call.run(Collective::kBroadcast, {.segments = segments}); }),
                  AllOf(HasSubstr("segment"), HasSubstr(std::to_string(segments))));
    }
    call.run(Collective::kBroadcast, {.segments = kMaxSegments});
  });
}

TEST(CallOptions, SegmentsKeepTheResultOfEveryAlgorithm) {
  for_each_group({1, 2, 3, 8}, [](Communicator& ranks) {
    const std::size_t each = 1009, size = static_cast<std::size_t>(ranks.size());
    for (const std::string& algorithm : algorithm_names(Collective::kBroadcast, ranks)) {
      std::vector<std::int32_t> values(each, ranks.rank());
      ranks.broadcast(values, ranks.size() - 1, {.algorithm = algorithm, .segments = 4});
      EXPECT_EQ(values, std::vector<std::int32_t>(each, ranks.size() - 1)) << algorithm;
    }
    for (const std::string& algorithm : algorithm_names(Collective::kAllgather, ranks)) {
      const std::vector<std::int32_t> own(each, ranks.rank());
      std::vector<std::int32_t> all(each * size, -1), expected;
      for (int rank = 0; rank < ranks.size(); ++rank) expected.insert(expected.end(), each, rank);
      ranks.allgather(own, all, {}, {.algorithm = algorithm, .segments = 4});
      EXPECT_EQ(all, expected) << algorithm;
    }
  });
}

/// @param unit  elements that rank 0 sends to rank 0; each rank sends one more to each further peer
void check_alltoall(Communicator& ranks, const std::string& algorithm, std::size_t unit) {
  std::vector<std::size_t> sends, receives;
  std::vector<std::int32_t> input, expected;
  for (int peer = 0; peer < ranks.size(); ++peer) {
    sends.push_back(unit + static_cast<std::size_t>(peer));
    receives.push_back(unit + static_cast<std::size_t>(ranks.rank()));
    input.insert(input.end(), sends.back(), 100 * ranks.rank() + peer);
    expected.insert(expected.end(), receives.back(), 100 * peer + ranks.rank());
  }
  std::vector<std::int32_t> output(expected.size(), -1);
  ranks.alltoall(input, output, sends, receives, {.algorithm = algorithm});
  EXPECT_EQ(output, expected) << algorithm << ", uneven, " << unit;
  input.clear(), expected.clear();
  for (int peer = 0; peer < ranks.size(); ++peer) {
    input.insert(input.end(), unit, 100 * ranks.rank() + peer);
    expected.insert(expected.end(), unit, 100 * peer + ranks.rank());
  }
  output.assign(expected.size(), -1);
  ranks.alltoall(input, output, {}, {}, {.algorithm = algorithm});
  EXPECT_EQ(output, expected) << algorithm << ", equal, " << unit;
}

TEST(CallOptions, AlltoallRunsByItsNamedAlgorithm) {
  for_each_group(conformance_sizes(), [](Communicator& ranks) {
    for (const std::string& algorithm : algorithm_names(Collective::kAlltoall, ranks)) {
      if (algorithm == "hierarchical") continue;  // refuses uneven parts
      for (const std::size_t unit : {0, 1, 2003}) check_alltoall(ranks, algorithm, unit);
    }
  });
}

TEST(CallOptions, BarrierRunsByItsNamedAlgorithm) {
  for_each_group(conformance_sizes(), [](Communicator& ranks) {
    for (const std::string& algorithm : algorithm_names(Collective::kBarrier, ranks)) {
      ranks.barrier({.algorithm = algorithm});
      ranks.barrier_async({.algorithm = algorithm}).wait();
    }
  });
}

TEST(CallOptions, BarriersOfDifferentAlgorithmsAreAMismatch) {
  for_each_group({2, 3}, [](Communicator& ranks) {
    if (!ranks.shares_memory()) return;  // all barriers by messages run by one algorithm
    const std::vector<std::string> names = algorithm_names(Collective::kBarrier, ranks);
    const std::string_view mine = ranks.rank() == 1 ? names[1] : names[0];
    EXPECT_THAT(message_of<Mismatch>([&] { ranks.barrier({.algorithm = mine}); }), HasSubstr("algorithm"));
    ranks.barrier();
  });
}

}  // namespace
}  // namespace farandole::test
