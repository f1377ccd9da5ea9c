// SPDX-License-Identifier: Apache-2.0
// A small training, which takes milliseconds.
#pragma once

#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "farandole/trainer/layers.h"
#include "farandole/trainer/trainer.h"

namespace farandole::trainer::test {

inline const Shape kImage{8, 8, 1};
constexpr std::int32_t kClasses = 4;
constexpr std::uint64_t kSeed = 5;

template <class Scalar>
LayerList<Scalar> layers(std::initializer_list<std::function<std::unique_ptr<Layer<Scalar>>()>> makers) {
  LayerList<Scalar> list;
  for (const auto& make : makers) list.push_back(make());
  return list;
}

template <class Scalar>
LayerList<Scalar> mlp() {
  return layers<Scalar>({[] { return dense<Scalar>(16); }, relu<Scalar>, [] { return dense<Scalar>(kClasses); }});
}

template <class Scalar>
using Layers = std::function<LayerList<Scalar>()>;

struct Data {
  std::shared_ptr<const Dataset> training = synthetic_dataset(250, kImage, kClasses, kSeed);
  std::shared_ptr<const Dataset> test = synthetic_dataset(130, kImage, kClasses, kSeed);
};

/// 250 samples in batches of 32: the last batch of an epoch has 26, which 4 replicas cut unevenly.
inline TrainerOptions options_for(std::int64_t steps) {
  TrainerOptions options;
  options.global_batch = 32;
  options.epochs = 100;
  options.max_steps = steps;
  options.learning_rate.base = 0.02;
  options.seed = kSeed;
  options.evaluate_every = 0;
  options.evaluation_batch = 20;
  return options;
}

/// What `run` throws on each rank, as `what()` says it; empty where it throws nothing.
inline std::vector<std::string> errors_of(int replicas, const std::function<void(Communicator&)>& run) {
  std::vector<std::string> messages(static_cast<std::size_t>(replicas));
  run_replicas(replicas, [&](Communicator& replica) {
    try {
      run(replica);
    } catch (const std::exception& error) {
      messages[static_cast<std::size_t>(replica.rank())] = error.what();
    }
  });
  return messages;
}

}  // namespace farandole::trainer::test
