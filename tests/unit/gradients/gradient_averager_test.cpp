// SPDX-License-Identifier: Apache-2.0
#include "farandole/gradients/gradient_averager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "message_of.h"
#include "variable.h"

namespace farandole {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<GradientSpan> spans_of(std::vector<std::vector<float>>& gradients) {
  std::vector<GradientSpan> spans;
  for (auto& gradient : gradients) spans.push_back({gradient, "gradient"});
  return spans;
}

void fill(std::vector<std::vector<float>>& gradients, float number) {
  for (auto& gradient : gradients) gradient.assign(gradient.size(), number);
}

/// A training step in which all gradients are ready already.
void average(GradientAverager&& averager) {
  averager.ready_all();
  averager.wait();
}

TEST(GradientAverager, AveragesScatteredGradientsOverSeveralTrainingSteps) {
  run_replicas(3, [](Communicator& ranks) {
    std::vector<std::vector<float>> gradients{std::vector<float>(10), std::vector<float>(0), std::vector<float>(3000),
                                              std::vector<float>(7)};
    GradientOptions options;
    options.bucket_bytes = 4096;
    GradientAverager averager(ranks, spans_of(gradients), options);
    EXPECT_EQ(averager.bucket_count(), 3U);
    for (int training_step = 0; training_step < 5; ++training_step) {
      fill(gradients, static_cast<float>(training_step + ranks.rank()));
      for (std::size_t i = gradients.size(); i-- > 0;) averager.ready(i);
      averager.wait();
      for (const auto& gradient : gradients) {
        for (const float x : gradient) ASSERT_EQ(x, static_cast<float>(training_step + 1));
      }
    }
  });
}

TEST(GradientAverager, RanksMayMarkInDifferentOrders) {
  run_replicas(4, [](Communicator& ranks) {
    std::vector<std::vector<float>> gradients(8, std::vector<float>(500));
    GradientOptions options;
    options.op = ReduceOp::kSum;
    options.bucket_bytes = 3000;
    options.last_bucket_bytes = 2000;
    GradientAverager averager(ranks, spans_of(gradients), options);
    fill(gradients, 1.0F);
    for (std::size_t k = 0; k < 6; ++k) averager.ready((k * 3 + static_cast<std::size_t>(ranks.rank())) % 8);
    averager.ready_all();
    averager.wait();
    for (const auto& gradient : gradients) ASSERT_EQ(gradient[499], 4.0F);
  });
}

TEST(GradientAverager, OneVectorIsReducedInPlaceWithASmallLastBucket) {
  run_replicas(2, [](Communicator& ranks) {
    std::vector<double> flat(1000, ranks.rank() + 1.0);
    std::vector<GradientSpan> spans;
    for (std::size_t i = 0; i < 10; ++i) spans.push_back({BufferView(flat.data() + 100 * i, 100, DType::kF64), "part"});
    GradientOptions options;
    options.bucket_bytes = 4000;
    options.last_bucket_bytes = 800;
    GradientAverager averager(ranks, spans, options);
    EXPECT_EQ(averager.bucket_count(), 3U);  // 5 spans, 4 spans, 1 span
    for (std::size_t i = 10; i-- > 0;) averager.ready(i);
    averager.wait();
    for (const double x : flat) ASSERT_EQ(x, 1.5);
  });
}

TEST(GradientAverager, MarkingTwiceIsAnError) {
  run_replicas(2, [](Communicator& ranks) {
    std::vector<std::vector<float>> gradients(2, std::vector<float>(4));
    GradientAverager averager(ranks, spans_of(gradients));
    averager.ready(1);
    EXPECT_THROW(averager.ready(1), InvalidArgument);
    EXPECT_THROW(averager.ready(2), InvalidArgument);
    averager.ready(0);
    averager.wait();
  });
}

TEST(GradientAverager, DifferentListsAreAMismatchOnEveryRank) {
  run_replicas(3, [](Communicator& ranks) {
    std::vector<std::vector<float>> gradients(2, std::vector<float>(ranks.rank() == 2 ? 5 : 4));
    EXPECT_THROW(GradientAverager(ranks, spans_of(gradients)), Mismatch);
  });
}

TEST(GradientAverager, GradientsInMemoryOfADeviceAreRefusedOnEveryRank) {
  run_replicas(2, [](Communicator& ranks) {
    std::vector<GradientSpan> spans{{BufferView(nullptr, 8, DType::kF32, {MemoryKind::kCuda, 0}), "gradient"}};
    EXPECT_THROW(GradientAverager(ranks, spans), InvalidArgument);
    std::vector<float> host(8);
    if (ranks.rank() == 0) {
      spans[0].values = host;
      EXPECT_THROW(GradientAverager(ranks, spans), Mismatch);
    } else {
      EXPECT_THROW(GradientAverager(ranks, spans), InvalidArgument);
    }
  });
}

/// Memory of three gradients that may be made to overlap.
struct Embedding {
  std::vector<float> embed = std::vector<float>(1000), body = std::vector<float>(3000), head = std::vector<float>(1000);

  std::vector<GradientSpan> apart() { return {{embed, "embed"}, {body, "body"}, {head, "head"}}; }
  std::vector<GradientSpan> tied() { return {{embed, "embed"}, {body, "body"}, {embed, "head"}}; }
  /// The last one ends where `part` begins, plus one element.
  std::vector<GradientSpan> overlapping(std::size_t part) {
    return {{embed, "embed"}, {body, "body"}, {BufferView(embed).part(part, 1), "head"}};
  }
};

TEST(GradientAverager, OverlapIsInvalidThereAndAMismatchElsewhere) {
  run_replicas(3, [](Communicator& ranks) {
    Embedding model;
    const std::vector<std::vector<GradientSpan>> refused{model.tied(), model.overlapping(0), model.overlapping(999)};
    for (std::size_t i = 0; i < refused.size(); ++i) {
      for (const bool tied_spans : {false, true}) {
        if (tied_spans && i == 0) continue;  // is what the option is for
        GradientOptions options;
        options.tied_spans = tied_spans;
        if (ranks.rank() == 1) {
          EXPECT_THAT(message_of<InvalidArgument>([&] { GradientAverager(ranks, refused[i], options); }),
                      AllOf(HasSubstr("gradient 0 (embed) [0x"), HasSubstr("gradient 2 (head) [0x"),
                            HasSubstr(i == 0 ? "tied_spans" : "overlap")));
        } else {
          EXPECT_THAT(message_of<Mismatch>([&] { GradientAverager(ranks, model.apart(), options); }),
                      AllOf(HasSubstr(ranks.describe(1)), HasSubstr("gradient 2 (head) [0x")));
        }
      }
    }
    EXPECT_THROW(GradientAverager(ranks, model.tied()), InvalidArgument);  // on every rank
    average(GradientAverager(ranks, model.apart()));
  });
  run_replicas(1,
               [](Communicator& rank) { EXPECT_THROW(GradientAverager(rank, Embedding().tied()), InvalidArgument); });
}

TEST(GradientAverager, TiedSpansAreReducedOnceWhenAllAreReady) {
  run_replicas(3, [](Communicator& ranks) {
    for (const std::size_t bucket_bytes : {std::size_t{1}, std::size_t{8000}, std::size_t{1} << 20}) {
      Embedding model;
      GradientOptions options;
      options.op = ReduceOp::kSum;
      options.bucket_bytes = bucket_bytes;
      options.tied_spans = true;
      GradientAverager averager(ranks, model.tied(), options);
      for (int training_step = 0; training_step < 3; ++training_step) {
        const auto own = static_cast<float>(ranks.rank() + 1);
        model.embed.assign(1000, own);
        averager.ready(2);
        EXPECT_THROW(averager.ready(2), InvalidArgument);
        model.body.assign(3000, own);
        averager.ready(1);
        // The embedding adds its part to what the head has written.
        for (float& x : model.embed) x += 10 * own;
        averager.ready(0);
        averager.wait();
        for (const float x : model.embed) ASSERT_EQ(x, 66.0F);
        for (const float x : model.body) ASSERT_EQ(x, 6.0F);
      }
    }
  });
}

TEST(GradientAverager, TiesThatDifferAreAMismatchOnEveryRank) {
  run_replicas(2, [](Communicator& ranks) {
    Embedding model;
    GradientOptions options;
    options.tied_spans = true;
    EXPECT_THAT(message_of<Mismatch>(
                    [&] { GradientAverager(ranks, ranks.rank() == 0 ? model.tied() : model.apart(), options); }),
                HasSubstr("tied"));
  });
}

TEST(GradientAverager, MemoryOfALivingAveragerIsRefused) {
  run_replicas(2, [](Communicator& ranks) {
    Embedding model;
    std::vector<float> other(1);
    std::optional<GradientAverager> first(std::in_place, ranks, model.apart());
    // Begins before and ends after the memory of the first, and lies in its middle.
    const std::vector<std::vector<GradientSpan>> taken{{{model.body, "again"}},
                                                       {{BufferView(model.body).part(17, 1), "again"}}};
    for (const auto& spans : taken) {
      if (ranks.rank() == 0) {
        EXPECT_THAT(message_of<InvalidArgument>([&] { GradientAverager(ranks, spans); }),
                    AllOf(HasSubstr("gradient 0 (again) [0x"), HasSubstr("gradient 1 (body) [0x"),
                          HasSubstr("of " + ranks.describe(0))));
      } else {
        EXPECT_THAT(message_of<Mismatch>([&] {
                      GradientAverager(ranks, {{other, "other"}});
                    }),
                    AllOf(HasSubstr(ranks.describe(0)), HasSubstr("std::optional")));
      }
    }
    GradientAverager moved = std::move(*first);
    first.reset();
    EXPECT_THROW(GradientAverager(ranks, taken[0]), InvalidArgument);
    { const GradientAverager ended = std::move(moved); }
    average(GradientAverager(ranks, taken[0]));
  });
}

TEST(GradientAverager, RanksThatShareMemoryAreRefused) {
  std::vector<float> shared(100);
  std::atomic<int> invalid{0}, mismatches{0};
  run_replicas(3, [&](Communicator& ranks) {
    try {
      const GradientAverager averager(ranks, {{shared, "shared"}});
    } catch (const InvalidArgument&) {
      ++invalid;
    } catch (const Mismatch&) {
      ++mismatches;
    }
  });
  EXPECT_EQ(invalid, 2);
  EXPECT_EQ(mismatches, 1);
}

TEST(GradientAverager, MemoryThatOneRankLacksFailsOnAllRanks) {
  const test::Variable limit("FARANDOLE_WINDOW_BYTES", "36MiB");
  std::atomic<int> refused{0}, mismatched{0};
  run_replicas(2, [&](Communicator& ranks) {
    std::vector<std::vector<float>> gradients(2, std::vector<float>(std::size_t{2} << 20));
    GradientOptions options;
    options.bucket_bytes = options.last_bucket_bytes = std::size_t{64} << 20;  // a packed bucket of 16 MiB
    try {
      const GradientAverager averager(ranks, spans_of(gradients), options);
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("does not fit"));
      ++refused;
    } catch (const Mismatch& error) {
      EXPECT_THAT(error.what(), HasSubstr("does not fit"));
      ++mismatched;
    }
    ranks.barrier();
  });
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(mismatched, 1);
}

TEST(GradientAverager, MovedFromOrRanklessAveragerRaises) {
  std::vector<std::vector<float>> gradients(2, std::vector<float>(5));
  EXPECT_THROW(GradientAverager(Communicator(), spans_of(gradients)), InvalidArgument);
  run_replicas(2, [](Communicator& ranks) {
    std::vector<std::vector<float>> own(2, std::vector<float>(5));
    GradientAverager first(ranks, spans_of(own));
    GradientAverager second = std::move(first);
    EXPECT_THROW(first.ready(0), InvalidArgument);  // NOLINT(bugprone-use-after-move): that is what is tested
    EXPECT_THROW(first.wait(), InvalidArgument);
    EXPECT_THROW((void)first.bucket_count(), InvalidArgument);
    EXPECT_THROW((void)first.exposed(), InvalidArgument);
    EXPECT_THROW(first.ready_all(), InvalidArgument);
    EXPECT_THROW(first.abandon(), InvalidArgument);
    EXPECT_THROW(first.begin(1), InvalidArgument);
    EXPECT_THROW(first.add({}), InvalidArgument);
    average(std::move(second));
  });
}

TEST(GradientAverager, RaisesAfterItsWorldHasEnded) {
  std::vector<std::vector<std::vector<float>>> gradients(2, {std::vector<float>(5), std::vector<float>(7)});
  std::vector<std::unique_ptr<GradientAverager>> averagers(2);
  {
    WorldOptions options;
    options.replicas = 2;
    options.alone = true;
    World world(options);
    run_replicas(world, [&](Communicator& ranks) {
      const auto self = static_cast<std::size_t>(ranks.rank());
      averagers[self] = std::make_unique<GradientAverager>(ranks, spans_of(gradients[self]));
      fill(gradients[self], 1.0F);
      for (std::size_t i = gradients[self].size(); i-- > 0;) averagers[self]->ready(i);
    });
  }
  for (const auto& averager : averagers) {
    averager->wait();  // was complete when the World ended
    EXPECT_THROW(averager->wait(), InvalidArgument);
  }
  EXPECT_EQ(gradients[1][1][6], 1.0F);
}

}  // namespace
}  // namespace farandole
