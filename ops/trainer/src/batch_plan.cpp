// SPDX-License-Identifier: Apache-2.0
#include "batch_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "farandole/core/error.h"
#include "farandole/trainer/random.h"
#include "trainer_options.h"

namespace farandole::trainer {
namespace {

/// Number of training steps in which all ranks use their shards, so that the global batches have at most about
/// `global_batch` samples; 0 if the ranks share the data.
std::int64_t steps_of_shards(const std::vector<std::int64_t>& shards, std::int64_t global_batch) {
  const std::int64_t all = std::accumulate(shards.begin(), shards.end(), std::int64_t{0});
  return (all + global_batch - 1) / global_batch;
}

/// A seed of each rank's own, so that equal shards are neither shuffled nor augmented alike.
std::uint64_t seed_of_shard(std::uint64_t seed, int rank) {
  return random_stream(RandomPurpose::kShard, {seed, static_cast<std::uint64_t>(rank)});
}

}  // namespace

BatchPlan::BatchPlan(const TrainerOptions& options, const Dataset& training, std::vector<std::int64_t> shards, int rank,
                     int replicas)
    : shards_(std::move(shards)),
      rank_(rank),
      replicas_(replicas),
      deterministic_(options.deterministic),
      drop_last_(options.data.drop_last),
      micro_batches_(deterministic_ ? options.micro_batches / replicas : options.accumulate),
      seed_(has_own_shards() ? seed_of_shard(options.seed, rank) : options.seed),
      loader_(training.size(), options.global_batch, seed_,
              {.drop_last = drop_last_,
               .shuffle = !training.is_sequential(),
               .even_batches = steps_of_shards(shards_, options.global_batch)}) {}

StepSamples BatchPlan::samples(std::int64_t step_of_epoch) const {
  StepSamples samples;
  if (has_own_shards()) {
    for (int rank = 0; rank < replicas_; ++rank) {
      const std::int64_t count =
          part_of(shards_[static_cast<std::size_t>(rank)], steps_per_epoch(), step_of_epoch).count;
      if (rank == rank_) samples.own = {samples.all, count};
      samples.all += count;
    }
    return samples;
  }
  samples.all = loader_.place_of(step_of_epoch).count;
  samples.own = part_of(samples.all, replicas_, rank_);
  if (deterministic_) {
    const std::int64_t parts = micro_batches_ * replicas_;
    const std::int64_t first = part_of(samples.all, parts, rank_ * micro_batches_).first;
    const Range last = part_of(samples.all, parts, (rank_ + 1) * micro_batches_ - 1);
    samples.own = {first, last.first + last.count - first};
  }
  return samples;
}

Range BatchPlan::micro_batch(const StepSamples& samples, std::int64_t index) const {
  if (deterministic_) return part_of(samples.all, micro_batches_ * replicas_, rank_ * micro_batches_ + index);
  const Range part = part_of(samples.own.count, micro_batches_, index);
  return {samples.own.first + part.first, part.count};
}

std::string BatchPlan::data_name(int rank) const {
  if (!has_own_shards()) return kTrainingData;
  return fmt::format("rank {}'s own shard", rank);
}

std::int64_t BatchPlan::smallest_micro_batch() const {
  std::int64_t part = loader_.last_batch() / replicas_;
  if (has_own_shards()) part = *std::min_element(shards_.begin(), shards_.end()) / steps_per_epoch();
  return part / micro_batches_;
}

std::vector<std::pair<std::string, std::string>> BatchPlan::options_to_match() const {
  const std::int64_t shared = loader_.samples();
  const std::int64_t all = std::accumulate(shards_.begin(), shards_.end(), has_own_shards() ? 0 : shared);
  return {{"training samples", std::to_string(all)},
          {"drop last", drop_last_ ? "yes" : "none"},
          {"samples of the ranks' own shards", has_own_shards() ? fmt::format("{}", fmt::join(shards_, " ")) : "none"}};
}

std::vector<std::int64_t> shard_sizes(Communicator& communicator, std::int64_t own) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(communicator.size()));
  communicator.allgather(std::array{own}, sizes);
  return sizes;
}

void check_data_options(const TrainerOptions& options, const Dataset& training) {
  const DataOptions& data = options.data;
  if (data.threads < 0 || data.threads > 1024) {
    throw InvalidArgument(fmt::format("data.threads is {}; it must be from 0 to 1024", data.threads));
  }
  if (data.batches_ahead < 0) {
    throw InvalidArgument(fmt::format("data.batches_ahead is {}; it must be at least 0", data.batches_ahead));
  }
  if (data.own_shards && data.drop_last) {
    throw InvalidArgument(
        "data.drop_last has no effect with data.own_shards, where all global batches of an epoch have about the same "
        "size; leave it off");
  }
  if (!options.deterministic) return;
  if (data.own_shards) {
    throw Unsupported(
        "own shards are not available in deterministic mode, because the samples of each training step depend on the "
        "number of ranks; give every rank the whole data set");
  }
  if (training.is_sequential()) {
    throw Unsupported(
        "streams are not available in deterministic mode, because the trainer can neither repeat nor compare what a "
        "stream gives on each rank, and so cannot promise the same bits; use data with an index");
  }
}

}  // namespace farandole::trainer
