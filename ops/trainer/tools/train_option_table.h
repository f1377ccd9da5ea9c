// SPDX-License-Identifier: Apache-2.0
// The options of farandole-train: their table, and the checks of their values.
#pragma once

#include <array>
#include <boost/program_options.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "program.h"
#include "train_options.h"

namespace farandole::trainer {

inline constexpr std::array<std::string_view, 6> kSchedules{"constant",   "step",      "cosine",
                                                            "polynomial", "one-cycle", "plateau"};
inline constexpr std::array<std::string_view, 4> kDataKinds{"fashion-mnist", "cifar10", "images", "text"};

/// Values as Boost parses them, before checks and translation. More than 15 members: one for each option.
struct RawOptions {
  std::string optimizer, schedule, precision, loss_scale, master, device, data_directory, json_file, csv_file,
      checkpoint_directory;
  int64_t replicas, ranks, threads, keep, epochs, max_steps, batch, accumulate, seed, micro_batches, warmup,
      step_epochs, plateau_patience, evaluate_every, checkpoint_every, checkpoint_every_steps;
  double rate, momentum, decay, clip, step_factor, minimum, power, pct_start, div_factor, final_div_factor,
      plateau_factor, plateau_threshold, ema_decay, checkpoint_every_minutes;
  bool alone;
  std::vector<std::string> groups;
  int64_t loader_threads, samples, top_k;
};

/// Adds all options, by groups. @param raw, command  set by the options in boost::program_options::notify
void add_options(tools::OptionTable& table, RawOptions& raw, TrainCommand& command);

/// Checks words and ranges. @throws InvalidArgument  names the option, its value and what is valid
void check_values(const RawOptions& raw, const TrainCommand& command);
/// Checks that every option that was given has an effect. @throws InvalidArgument  names what the option needs
void check_effect(const boost::program_options::variables_map& values, const RawOptions& raw,
                  const TrainCommand& command);

}  // namespace farandole::trainer
