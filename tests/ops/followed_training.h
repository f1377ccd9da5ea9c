// SPDX-License-Identifier: Apache-2.0
// A small training whose rates and parameters are recorded on every rank.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "small_training.h"
#include "trainer_files.h"

namespace farandole::trainer::test {

/// What a rank has seen of a training.
struct Course {
  std::vector<double> rates;  // of each training step
  std::vector<double> parameters, averages;
  EpochReport report;
};

/// Trains an MLP on each rank. @param alter  changes the options of a rank
inline std::vector<Course> follow(int replicas, const TrainerOptions& options,
                                  const std::function<void(TrainerOptions&, int rank)>& alter = {}) {
  std::vector<Course> courses(static_cast<std::size_t>(replicas));
  run_replicas(replicas, [&](Communicator& replica) {
    Course& course = courses[static_cast<std::size_t>(replica.rank())];
    const Data data;
    TrainerOptions mine = options;
    mine.on_step = [&](const StepReport& report) { course.rates.push_back(report.learning_rate); };
    if (alter) alter(mine, replica.rank());
    Trainer<double> trainer(replica, Model<double>(kImage, mlp<double>()), data.training, data.test, mine);
    course.report = trainer.fit();
    const auto copy = [](std::span<const double> values) { return std::vector<double>(values.begin(), values.end()); };
    course.parameters = copy(trainer.model().parameters().host());
    course.averages = copy(trainer.averaged_parameters());
  });
  return courses;
}

/// Errors of class `Kind` that each rank's training throws.
template <class Kind>
std::vector<std::string> errors_of(int replicas, const TrainerOptions& options,
                                   const std::function<void(TrainerOptions&, int rank)>& alter = {}) {
  std::vector<std::string> messages(static_cast<std::size_t>(replicas));
  run_replicas(replicas, [&](Communicator& replica) {
    const Data data;
    TrainerOptions mine = options;
    if (alter) alter(mine, replica.rank());
    messages[static_cast<std::size_t>(replica.rank())] = farandole::test::message_of<Kind>([&] {
      Trainer<double> trainer(replica, Model<double>(kImage, mlp<double>()), data.training, data.test, mine);
      trainer.fit();
    });
    replica.barrier();  // the communicator is still usable
  });
  return messages;
}

/// Trains to the end with stops after the given training steps, each time from the newest checkpoint. Returns what rank
/// 0 has seen, with the rates of all parts.
inline Course follow_in_parts(int replicas, TrainerOptions options, const std::vector<std::int64_t>& stops) {
  const TemporaryDirectory directory;
  options.checkpoints.directory = directory.path();
  const std::int64_t last = options.max_steps;
  std::vector<double> rates;
  Course part;
  for (std::size_t i = 0; i <= stops.size(); ++i) {
    options.max_steps = i < stops.size() ? stops[i] : last;
    part = follow(replicas, options)[0];
    rates.insert(rates.end(), part.rates.begin(), part.rates.end());
    options.checkpoints.resume = true;
  }
  part.rates = std::move(rates);
  return part;
}

}  // namespace farandole::trainer::test
