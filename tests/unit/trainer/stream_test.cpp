// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/trainer/augmentation.h"
#include "message_of.h"

namespace farandole::trainer {
namespace {

using farandole::test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;

/// What the generators of a stream have done.
struct Journal {
  int generators = 0;
  std::vector<std::int64_t> computed, skipped;
};

/// Sample n is n, and its target 10 n.
std::shared_ptr<const Dataset> counting(Journal& journal, std::int64_t samples_per_epoch = 10) {
  return stream_dataset({.shape = {1}, .samples_per_epoch = samples_per_epoch, .target_shape = {1}}, [&journal] {
    ++journal.generators;
    return [&journal, next = std::int64_t{0}](StreamSample& sample) mutable {
      (sample.is_skipped ? journal.skipped : journal.computed).push_back(next);
      sample.input[0] = static_cast<float>(next);
      sample.target[0] = static_cast<float>(10 * next++);
    };
  });
}

template <class Scalar>
std::vector<Scalar> read(const Dataset& data, const std::vector<std::uint32_t>& samples, std::int64_t epoch) {
  Batch<Scalar> batch;
  data.gather_for_training(samples, {.seed = 1, .epoch = epoch}, batch);
  for (std::int64_t i = 0; i < batch.inputs.size(); ++i) {
    EXPECT_EQ(batch.targets.data()[i], 10 * batch.inputs.data()[i]);
  }
  return {batch.inputs.host().begin(), batch.inputs.host().end()};
}

TEST(Stream, RunsForwardThroughTheEpochsAndSkipsForeignSamples) {
  Journal journal;
  const auto stream = counting(journal)->for_replica();
  EXPECT_THAT(read<float>(*stream, {2, 3}, 0), ElementsAre(2, 3));
  EXPECT_THAT(read<double>(*stream, {7}, 0), ElementsAre(7));
  EXPECT_THAT(read<float>(*stream, {0, 1}, 1), ElementsAre(10, 11));
  EXPECT_THAT(journal.computed, ElementsAre(2, 3, 7, 10, 11));
  EXPECT_THAT(journal.skipped, ElementsAre(0, 1, 4, 5, 6, 8, 9));
  EXPECT_EQ(journal.generators, 1);
}

TEST(Stream, BeginsAgainForASampleThatHasPassed) {
  Journal journal;
  const auto stream = counting(journal)->for_replica();
  EXPECT_THAT(read<float>(*stream, {5}, 0), ElementsAre(5));
  EXPECT_THAT(read<float>(*stream, {4}, 0), ElementsAre(4));
  EXPECT_EQ(journal.generators, 2);
}

TEST(Stream, EachReplicaHasAGeneratorOfItsOwn) {
  Journal journal;
  const auto data = counting(journal);
  const auto first = data->for_replica(), second = data->for_replica();
  EXPECT_THAT(read<float>(*first, {8}, 0), ElementsAre(8));
  EXPECT_THAT(read<float>(*second, {1}, 0), ElementsAre(1));
  EXPECT_EQ(journal.generators, 2);
}

TEST(Stream, AGeneratorThatThrowsIsReplaced) {
  int generators = 0;
  const auto stream = stream_dataset({.shape = {1}, .samples_per_epoch = 10}, [&] {
                        return [broken = ++generators == 1, next = 0](StreamSample& sample) mutable {
                          if (broken && next == 2) throw DataError("connection lost");
                          sample.input[0] = static_cast<float>(next++);
                        };
                      })->for_replica();
  Batch<float> batch;
  EXPECT_THAT(message_of<DataError>([&] {
                stream->gather(std::vector<std::uint32_t>{1, 2, 3}, batch);
              }),
              HasSubstr("connection lost"));
  stream->gather(std::vector<std::uint32_t>{1, 2, 3}, batch);
  EXPECT_EQ(batch.inputs.data()[2], 3);
}

TEST(Stream, LabelsAndWeightsAreRead) {
  const auto stream = stream_dataset({.shape = {1}, .samples_per_epoch = 10, .classes = 3}, [] {
                        return [next = 0](StreamSample& sample) mutable {
                          sample.label = next;
                          if (next++ == 1) sample.weight = 0.5F;
                        };
                      })->for_replica();
  Batch<float> batch;
  stream->gather(std::vector<std::uint32_t>{0, 1, 2}, batch);
  EXPECT_THAT(batch.labels, ElementsAre(0, 1, 2));
  EXPECT_THAT(batch.weights, ElementsAre(1, 0.5, 1));
  EXPECT_EQ(batch.targets.samples(), 0);
  EXPECT_THAT(message_of<DataError>([&] { stream->gather(std::vector<std::uint32_t>{3}, batch); }),
              HasSubstr("sample 3 of the stream has label 3, which is not in [0, 3)"));
}

TEST(Stream, CanBeAugmented) {
  const auto data = augmented(stream_dataset({.shape = {1, 2, 1}, .samples_per_epoch = 4},
                                             [] {
                                               return [](StreamSample& sample) {
                                                 sample.input[0] = 1;
                                                 sample.input[1] = 2;
                                               };
                                             }),
                              {.flip = 1});
  EXPECT_TRUE(data->is_sequential());
  Batch<float> batch;
  data->for_replica()->gather_for_training(std::vector<std::uint32_t>{0}, {}, batch);
  EXPECT_EQ(batch.inputs.data()[0], 2);
}

TEST(Stream, RefusesWhatDoesNotFit) {
  const auto none = [] { return [](StreamSample&) {}; };
  EXPECT_THROW(stream_dataset({.shape = {1}, .samples_per_epoch = 0}, none), InvalidArgument);
  EXPECT_THROW(stream_dataset({.samples_per_epoch = 5}, none), InvalidArgument);
  EXPECT_THROW(stream_dataset({.shape = {1}, .samples_per_epoch = 5}, {}), InvalidArgument);
  const auto stream = stream_dataset({.shape = {1}, .samples_per_epoch = 5}, none);
  Batch<float> batch;
  EXPECT_THAT(message_of<InvalidArgument>([&] { stream->gather(std::vector<std::uint32_t>{0}, batch); }),
              HasSubstr("a stream has no index"));
  const auto empty = stream_dataset({.shape = {1}, .samples_per_epoch = 5}, [] { return SampleGenerator(); });
  EXPECT_THAT(message_of<InvalidArgument>([&] { empty->for_replica()->gather(std::vector<std::uint32_t>{0}, batch); }),
              HasSubstr("returned an empty function"));
}

}  // namespace
}  // namespace farandole::trainer
