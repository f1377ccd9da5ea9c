// SPDX-License-Identifier: Apache-2.0
// The command line of farandole-train.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "farandole/collectives/agreement.h"
#include "farandole/trainer/trainer.h"

namespace farandole::trainer {

/// The parsed command line.
struct TrainCommand {
  std::string model = "cnn";
  bool synchronized_batch_normalization = false;
  std::filesystem::path data_directory;
  bool double_precision = false;
  int replicas = 1;
  int expected_ranks = 0;
  TrainerOptions training;
  std::filesystem::path json_file, csv_file;
  bool log_steps = false;
  bool quiet = false;
  /// Options that must be the same on all ranks, with given or default values.
  std::vector<SharedFact> shared;
};

/// Parses the command line. Answers --help and --version itself, and returns an empty optional then.
/// @throws InvalidArgument  an option is unknown (names the nearest), malformed or out of range (says the range)
/// @throws DataError  the answer could not be written to standard output
std::optional<TrainCommand> parse_command_line(const std::vector<std::string>& arguments);

}  // namespace farandole::trainer
