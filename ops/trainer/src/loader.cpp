// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/trainer/random.h"

namespace farandole::trainer {

Range part_of(std::int64_t count, std::int64_t parts, std::int64_t index) {
  const std::int64_t first = index * count / parts;
  return {first, (index + 1) * count / parts - first};
}

Loader::Loader(std::int64_t samples, std::int64_t global_batch, std::uint64_t seed, const LoaderOptions& options)
    : samples_(samples), global_batch_(global_batch), seed_(seed), options_(options) {
  if (samples < 1 || samples > std::numeric_limits<std::uint32_t>::max()) {
    throw InvalidArgument(fmt::format("cannot train on {} samples; between 1 and 2^32 - 1 are possible", samples));
  }
  if (global_batch < 1) throw InvalidArgument(fmt::format("a global batch of {} samples; at least 1", global_batch));
  batches_ = options.drop_last ? samples / global_batch : (samples + global_batch - 1) / global_batch;
  if (options.even_batches > 0) batches_ = options.even_batches;
  if (batches_ == 0) {
    throw InvalidArgument(
        fmt::format("drop_last leaves out the only batch of an epoch: {} samples are fewer than a global batch of {}; "
                    "choose a smaller global batch",
                    samples, global_batch));
  }
}

Range Loader::place_of(std::int64_t index) const {
  if (options_.even_batches > 0) return part_of(samples_, batches_, index);
  const std::int64_t first = index * global_batch_;
  return {first, std::min(global_batch_, samples_ - first)};
}

void Loader::start_epoch(std::int64_t epoch) {
  if (epoch == epoch_) return;
  order_.resize(static_cast<std::size_t>(samples_));
  std::iota(order_.begin(), order_.end(), 0U);
  epoch_ = epoch;
  if (!options_.shuffle) return;
  // Fisher-Yates; the counter makes each draw a function of (seed, epoch, position).
  const CounterRandom random(seed_, random_stream(RandomPurpose::kShuffle, {static_cast<std::uint64_t>(epoch)}));
  for (std::size_t last = order_.size() - 1; last > 0; --last) {
    std::swap(order_[last], order_[random.below(last, last + 1)]);
  }
}

std::span<const std::uint32_t> Loader::batch(std::int64_t index) const {
  if (epoch_ < 0 || index < 0 || index >= batches_per_epoch()) {
    throw InvalidArgument(fmt::format("batch {} of an epoch of {}", index, epoch_ < 0 ? 0 : batches_per_epoch()));
  }
  const Range place = place_of(index);
  return std::span(order_).subspan(static_cast<std::size_t>(place.first), static_cast<std::size_t>(place.count));
}

}  // namespace farandole::trainer
