// SPDX-License-Identifier: Apache-2.0
// The command line of farandole-train.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "farandole/collectives/agreement.h"
#include "farandole/trainer/augmentation.h"
#include "farandole/trainer/models.h"
#include "farandole/trainer/trainer.h"

namespace farandole::trainer {

/// Which data to train on.
struct DataCommand {
  std::string kind = "fashion-mnist";  ///< one of kDataKinds
  std::filesystem::path directory;     ///< or the file of a text; empty: the kind's default
  bool synthetic = false;              ///< data of the kind's shape, made from the seed
  std::int64_t samples = 0;            ///< synthetic: of the training set
  std::int64_t image_size = 64, text_length = 64;
  AugmentationOptions augmentation;
  std::uint64_t seed = 1;
};

/// The parsed command line.
struct TrainCommand {
  std::string model = "cnn";
  ModelOptions model_options;  ///< without what the data determine: input, classes and vocabulary
  bool summary = false;        ///< print the table of layers
  int top_k = 0;               ///< also report the accuracy of the top k classes; 0: do not
  DataCommand data;
  bool double_precision = false;
  int replicas = 1;
  bool replica_for_each_device = false;  ///< --device cuda or auto without --replicas
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
