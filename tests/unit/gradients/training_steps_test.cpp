// SPDX-License-Identifier: Apache-2.0
// Unusual training steps of a GradientAverager: unmarked gradients, abandoned steps, weights, gradients that are added
// or converted, and several averagers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/gradients/gradient_averager.h"
#include "message_of.h"
#include "variable.h"

namespace farandole {
namespace {

using test::message_of;
using test::Variable;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

/// Gradients of 100 elements that are not adjacent in memory. By default each is a bucket of its own.
class Layers {
 public:
  explicit Layers(std::size_t count) : values_(count, std::vector<float>(100)) {}
  std::vector<GradientSpan> spans() {
    std::vector<GradientSpan> spans;
    for (auto& values : values_) spans.push_back({values, "g" + std::to_string(spans.size())});
    return spans;
  }
  void fill(float number) {
    for (auto& values : values_) values.assign(values.size(), number);
  }
  std::vector<float>& operator[](std::size_t index) { return values_[index]; }

 private:
  std::vector<std::vector<float>> values_;
};

GradientOptions with_small_buckets() {
  GradientOptions options;
  options.bucket_bytes = options.last_bucket_bytes = 1;
  return options;
}

/// A training step of all ranks that must work: every rank contributes its rank, whatever happened before.
void expect_averages(GradientAverager& averager, Layers& layers, const Communicator& ranks) {
  layers.fill(static_cast<float>(ranks.rank()));
  averager.ready_all();
  averager.wait();
  EXPECT_THAT(layers[0], Each(static_cast<float>(ranks.size() - 1) / 2));
}

TEST(UnmarkedGradients, FailOnEveryRankAndLeaveTheJobUsable) {
  for (const int size : {1, 2, 3}) {
    run_replicas(size, [](Communicator& ranks) {
      Layers layers(4);
      GradientAverager averager(ranks, layers.spans(), with_small_buckets());
      expect_averages(averager, layers, ranks);
      const bool skips = ranks.rank() == ranks.size() - 1;
      for (const std::size_t index : {3, 1, 0}) averager.ready(index);
      if (skips) {
        EXPECT_THAT(message_of<InvalidArgument>([&] { averager.wait(); }),
                    AllOf(HasSubstr("1 of 4 gradients are not marked"), HasSubstr("2 (g2)"), HasSubstr("kZero")));
      } else {
        averager.ready(2);
        EXPECT_THAT(message_of<Mismatch>([&] { averager.wait(); }),
                    AllOf(HasSubstr("unmarked"), HasSubstr(ranks.describe(ranks.size() - 1))));
      }
      expect_averages(averager, layers, ranks);
    });
  }
}

TEST(UnmarkedGradients, OfAllRanksNameThemselvesOnEach) {
  run_replicas(2, [](Communicator& ranks) {
    Layers layers(20);
    GradientAverager averager(ranks, layers.spans());
    EXPECT_THAT(message_of<InvalidArgument>([&] { averager.wait(); }),
                AllOf(HasSubstr("20 of 20"), HasSubstr("19 (g19)"), HasSubstr("12 (g12), …")));
    expect_averages(averager, layers, ranks);
  });
}

TEST(UnmarkedGradients, EndTheJobWhereCallsAreNotCompared) {
  const Variable check("FARANDOLE_CHECK", "off");
  const Variable quiet("FARANDOLE_LOG", "off");
  EXPECT_THROW(run_replicas(2,
                            [](Communicator& ranks) {
                              Layers layers(2);
                              GradientAverager averager(ranks, layers.spans());
                              if (ranks.rank() == 0) averager.ready_all();
                              averager.wait();
                            }),
               PeerLost);
}

TEST(UnmarkedGradients, CountAsZerosByOption) {
  for (const int size : {1, 3}) {
    run_replicas(size, [](Communicator& ranks) {
      Layers layers(4);
      GradientOptions options = with_small_buckets();
      options.op = ReduceOp::kSum;
      options.unmarked = UnmarkedGradients::kZero;
      GradientAverager averager(ranks, layers.spans(), options);
      for (int training_step = 0; training_step < 3; ++training_step) {
        layers.fill(1);
        averager.ready(3);
        if (ranks.rank() != 0) averager.ready(1);
        averager.wait();
        EXPECT_THAT(layers[3], Each(static_cast<float>(ranks.size())));
        EXPECT_THAT(layers[1], Each(static_cast<float>(ranks.size() - 1)));
        EXPECT_THAT(layers[0], Each(0.0F));
      }
    });
  }
}

TEST(UnmarkedGradients, TiedToMarkedOnesKeepTheirValues) {
  run_replicas(2, [](Communicator& ranks) {
    std::vector<float> embed(100);
    GradientOptions options;
    options.tied_spans = true;
    options.unmarked = UnmarkedGradients::kZero;
    GradientAverager averager(ranks, {{embed, "embed"}, {embed, "head"}}, options);
    for (const std::size_t marked : {0, 1}) {
      embed.assign(100, 2);
      averager.ready(marked);
      averager.wait();
      EXPECT_THAT(embed, Each(2.0F));
    }
    averager.wait();
    EXPECT_THAT(embed, Each(0.0F));
  });
}

TEST(AbandonedStep, FailsOnRanksThatWait) {
  for (const std::size_t marked : {0, 1, 3}) {
    run_replicas(3, [&](Communicator& ranks) {
      Layers layers(4);
      GradientAverager averager(ranks, layers.spans(), with_small_buckets());
      if (ranks.rank() == 1) {
        for (std::size_t k = 0; k < marked; ++k) averager.ready(3 - k);
        averager.abandon();
      } else {
        averager.ready_all();
        EXPECT_THAT(message_of<Mismatch>([&] { averager.wait(); }),
                    AllOf(HasSubstr("abandoned"), HasSubstr(ranks.describe(1))));
      }
      expect_averages(averager, layers, ranks);
    });
  }
}

TEST(AbandonedStep, OfAllRanksAtDifferentPoints) {
  run_replicas(3, [](Communicator& ranks) {
    Layers layers(4);
    GradientAverager averager(ranks, layers.spans(), with_small_buckets());
    for (int training_step = 0; training_step < 3; ++training_step) {
      for (int k = 0; k < ranks.rank() * 2; ++k) averager.ready(3 - static_cast<std::size_t>(k));
      averager.abandon();
      expect_averages(averager, layers, ranks);
    }
  });
}

TEST(AbandonedStep, WithAllGradientsMarkedIsUnnoticed) {
  run_replicas(2, [](Communicator& ranks) {
    Layers layers(2);
    GradientAverager averager(ranks, layers.spans());
    layers.fill(1);
    averager.ready_all();
    ranks.rank() == 0 ? averager.abandon() : averager.wait();
    expect_averages(averager, layers, ranks);
  });
}

TEST(AbandonedStep, IsWhatTheDestructorMakesOfAStartedOne) {
  run_replicas(2, [](Communicator& ranks) {
    Layers layers(4);
    std::optional<GradientAverager> averager(std::in_place, ranks, layers.spans(), with_small_buckets());
    averager->ready(3);
    if (ranks.rank() == 0) {
      averager.reset();
    } else {
      averager->ready_all();
      EXPECT_THROW(averager->wait(), Mismatch);
      averager.reset();
    }
    std::vector<float> one(1, 1);
    ranks.allreduce(one, ReduceOp::kSum);
    EXPECT_EQ(one[0], 2);
  });
}

GradientOptions weighted() {
  GradientOptions options = with_small_buckets();
  options.weighted = true;
  return options;
}

TEST(WeightedAverages, AreMeansOverSamples) {
  for (const std::optional<DType> type : {std::optional<DType>(), std::optional(DType::kBF16)}) {
    run_replicas(3, [&](Communicator& ranks) {
      Layers layers(4);
      GradientOptions options = weighted();
      options.communicate_as = type;
      GradientAverager averager(ranks, layers.spans(), options);
      for (int training_step = 0; training_step < 3; ++training_step) {
        // Rank 1 has no samples, and leaves anything in its gradients.
        const std::vector<float> values{4, std::numeric_limits<float>::quiet_NaN(), 8};
        const std::vector<double> weights{3, 0, training_step == 2 ? 0.0 : 1.0};
        const auto self = static_cast<std::size_t>(ranks.rank());
        averager.begin(weights[self]);
        layers.fill(values[self]);
        if (ranks.rank() != 1) {
          for (std::size_t i = 4; i-- > 0;) averager.ready(i);
        } else if (training_step == 1) {
          averager.ready(2);
        }
        averager.wait();
        for (std::size_t i = 0; i < 4; ++i) ASSERT_THAT(layers[i], Each(training_step == 2 ? 4.0F : 5.0F));
      }
    });
  }
}

TEST(WeightedAverages, WithoutAnySampleFailOnEveryRank) {
  for (const int size : {1, 3}) {
    run_replicas(size, [](Communicator& ranks) {
      Layers layers(2);
      GradientAverager averager(ranks, layers.spans(), weighted());
      averager.begin(0);
      if (ranks.rank() == 0) averager.ready(1);
      EXPECT_THAT(message_of<InvalidArgument>([&] { averager.wait(); }), HasSubstr("weights of all ranks add up to 0"));
      averager.begin(1);
      expect_averages(averager, layers, ranks);
    });
  }
}

TEST(WeightedAverages, NeedBeginInEveryStep) {
  for (const bool abandons : {false, true}) {
    run_replicas(3, [&](Communicator& ranks) {
      Layers layers(3);
      GradientAverager averager(ranks, layers.spans(), weighted());
      if (ranks.rank() == 2) {
        EXPECT_THROW(averager.ready(2), InvalidArgument);
        if (abandons) {
          averager.abandon();
        } else {
          EXPECT_THAT(message_of<InvalidArgument>([&] { averager.wait(); }), HasSubstr("begin(weight)"));
        }
      } else {
        averager.begin(1);
        averager.ready(2);
        averager.ready_all();
        EXPECT_THROW(averager.wait(), Mismatch);
      }
      averager.begin(2);
      EXPECT_THROW(averager.begin(2), InvalidArgument);
      expect_averages(averager, layers, ranks);
    });
  }
}

TEST(WeightedAverages, MayBeAbandoned) {
  run_replicas(2, [](Communicator& ranks) {
    Layers layers(3);
    GradientAverager averager(ranks, layers.spans(), weighted());
    averager.begin(ranks.rank() + 1);
    averager.ready(2);
    averager.abandon();
    averager.begin(1);
    expect_averages(averager, layers, ranks);
    averager.begin(1);  // the destructor waits for the sum of weights
  });
}

TEST(WeightedAverages, RefuseWrongArguments) {
  run_replicas(2, [](Communicator& ranks) {
    Layers layers(2);
    {
      GradientAverager averager(ranks, layers.spans());
      EXPECT_THROW(averager.begin(1), InvalidArgument);
    }
    GradientOptions options = weighted();
    options.op = ReduceOp::kSum;
    EXPECT_THROW(GradientAverager(ranks, layers.spans(), options), InvalidArgument);
    std::vector<int> integers(3);
    EXPECT_THROW(GradientAverager(ranks, {{integers, "integers"}}, weighted()), InvalidArgument);
    GradientAverager averager(ranks, layers.spans(), weighted());
    for (const double weight : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
      EXPECT_THROW(averager.begin(weight), InvalidArgument);
    }
    averager.begin(1);
    expect_averages(averager, layers, ranks);
  });
}

TEST(Accumulation, MarksInTheLastPassOnly) {
  run_replicas(2, [](Communicator& ranks) {
    Layers layers(3);
    GradientAverager averager(ranks, layers.spans(), with_small_buckets());
    for (int training_step = 0; training_step < 2; ++training_step) {
      layers.fill(0);
      for (int pass = 0; pass < 4; ++pass) {
        for (std::size_t i = 3; i-- > 0;) {
          for (float& value : layers[i]) value += static_cast<float>(ranks.rank() + pass);
          if (pass == 3) averager.ready(i);
        }
      }
      averager.wait();
      for (std::size_t i = 0; i < 3; ++i) EXPECT_THAT(layers[i], Each(8.0F));
    }
    averager.ready(2);
    EXPECT_THAT(message_of<InvalidArgument>([&] { averager.ready(2); }), HasSubstr("last backward pass"));
    averager.abandon();
  });
}

TEST(SixteenBitCommunication, RoundsAsTheTypeDoes) {
  for (const auto& [type, lost, kept] :
       {std::tuple(DType::kF16, 0x1p-12F, 0x1p-10F), std::tuple(DType::kBF16, 0x1p-9F, 0x1p-7F)}) {
    run_replicas(2, [&, lost = lost, kept = kept, type = type](Communicator& ranks) {
      std::vector<float> flat(2000);  // adjacent gradients
      Layers layers(1);
      std::vector<double> wide(10, 1 + 0x1p-40);
      GradientOptions options;
      options.communicate_as = type;
      GradientAverager averager(ranks,
                                {{BufferView(flat).part(0, 999), "a"},
                                 {BufferView(flat).part(999, 1001), "b"},
                                 {layers[0], "c"},
                                 {wide, "wide"}},
                                options);
      for (int training_step = 0; training_step < 2; ++training_step) {
        flat.assign(2000, 1 + kept);
        layers.fill(1 + lost);
        averager.ready_all();
        averager.wait();
        EXPECT_THAT(flat, Each(1 + kept));
        EXPECT_THAT(layers[0], Each(1.0F));  // has been f16 or bf16
        EXPECT_THAT(wide, Each(1 + 0x1p-40));
      }
    });
  }
}

TEST(SixteenBitCommunication, KeepsItsBoundOfErrors) {
  constexpr int kSize = 3;
  for (const auto& [type, unit] : {std::pair(DType::kF16, 0x1p-11), std::pair(DType::kBF16, 0x1p-8)}) {
    run_replicas(kSize, [type = type, unit = unit](Communicator& ranks) {
      std::vector<float> values(5000);
      std::vector<double> means(values.size());
      for (int rank = 0; rank < kSize; ++rank) {
        std::mt19937 generator(static_cast<unsigned>(rank));
        std::uniform_real_distribution<float> numbers(-1, 1);
        for (std::size_t i = 0; i < values.size(); ++i) {
          const float number = numbers(generator);
          if (rank == ranks.rank()) values[i] = number;
          means[i] += number / static_cast<double>(kSize);
        }
      }
      GradientOptions options;
      options.communicate_as = type;
      GradientAverager averager(ranks, {{values, "values"}}, options);
      averager.ready_all();
      averager.wait();
      // Each contribution, each of two additions, and the division are rounded once; none exceeds kSize in magnitude.
      for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], means[i], unit * (1 + kSize)) << i;
    });
  }
}

TEST(SixteenBitCommunication, RefusesOtherTypes) {
  run_replicas(2, [](Communicator& ranks) {
    Layers layers(1);
    GradientOptions options;
    options.communicate_as = DType::kI32;
    EXPECT_THAT(message_of<InvalidArgument>([&] { GradientAverager(ranks, layers.spans(), options); }),
                HasSubstr("expected f16 or bf16, got i32"));
    if (ranks.rank() == 0) options.communicate_as = DType::kF16;
    if (ranks.rank() == 1) options.communicate_as = DType::kBF16;
    EXPECT_THROW(GradientAverager(ranks, layers.spans(), options), Mismatch);
  });
}

TEST(AddedGradients, AreReducedWithTheOthers) {
  run_replicas(3, [](Communicator& ranks) {
    Layers first(2), second(3);
    GradientOptions options = with_small_buckets();
    options.tied_spans = true;
    GradientAverager averager(ranks, first.spans(), options);
    expect_averages(averager, first, ranks);
    std::vector<GradientSpan> more = second.spans();
    more.push_back({first[0], "tied to an earlier one"});
    averager.add(more);
    EXPECT_EQ(averager.bucket_count(), 5U);
    EXPECT_THROW(GradientAverager(ranks, second.spans()), InvalidArgument);
    for (int training_step = 0; training_step < 2; ++training_step) {
      first.fill(static_cast<float>(ranks.rank()));
      second.fill(static_cast<float>(ranks.rank() * 2));
      for (std::size_t i = 6; i-- > 0;) averager.ready(i);
      averager.wait();
      for (std::size_t i = 0; i < 2; ++i) EXPECT_THAT(first[i], Each(1.0F));
      for (std::size_t i = 0; i < 3; ++i) EXPECT_THAT(second[i], Each(2.0F));
    }
  });
}

TEST(AddedGradients, ThatAreRefusedLeaveTheAveragerAsItWas) {
  run_replicas(2, [](Communicator& ranks) {
    Layers layers(2), more(1);
    GradientAverager averager(ranks, layers.spans(), with_small_buckets());
    EXPECT_THROW(averager.add({{more[0], "more"}, {layers[1], "again"}}), InvalidArgument);
    if (ranks.rank() == 0) {
      EXPECT_THROW(averager.add({{layers[1], "again"}}), InvalidArgument);
    } else {
      EXPECT_THROW(averager.add(more.spans()), Mismatch);
    }
    expect_averages(averager, layers, ranks);
    averager.ready(1);
    EXPECT_THROW(averager.add(more.spans()), InvalidArgument);
    averager.ready(0);
    averager.wait();
    EXPECT_EQ(averager.bucket_count(), 2U);
    const GradientAverager other(ranks, more.spans());  // the memory was not kept
    EXPECT_THROW(averager.add(more.spans()), InvalidArgument);
  });
}

TEST(SeveralAveragers, OfDifferentGroupsAreIndependent) {
  run_replicas(4, [](Communicator& ranks) {
    Layers shared(3), experts(3);
    Communicator pair = ranks.split(ranks.rank() / 2);
    GradientAverager all(ranks.duplicate(), shared.spans(), with_small_buckets());
    GradientAverager some(pair, experts.spans(), with_small_buckets());
    for (int training_step = 0; training_step < 3; ++training_step) {
      shared.fill(static_cast<float>(ranks.rank()));
      experts.fill(static_cast<float>(ranks.rank()));
      for (std::size_t i = 3; i-- > 0;) {
        // Different ranks mark the groups in different orders.
        (ranks.rank() % 2 == 0 ? all : some).ready(i);
        (ranks.rank() % 2 == 0 ? some : all).ready(i);
      }
      (ranks.rank() < 2 ? all : some).wait();
      (ranks.rank() < 2 ? some : all).wait();
      EXPECT_THAT(shared[0], Each(1.5F));
      EXPECT_THAT(experts[2], Each(ranks.rank() < 2 ? 0.5F : 2.5F));
    }
  });
}

}  // namespace
}  // namespace farandole
