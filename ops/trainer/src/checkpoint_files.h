// SPDX-License-Identifier: Apache-2.0
// The files of a checkpoint, for readers of the model alone.
#pragma once

#include <filesystem>

#include "safetensors.h"

namespace farandole::trainer {

/// True if `directory` is a complete checkpoint.
bool is_checkpoint(const std::filesystem::path& directory);
/// The file of parameters and statistics of a checkpoint.
std::filesystem::path model_file_of(const std::filesystem::path& checkpoint);
/// Compares the tensors of the model's file with the manifest's checksums. @throws DataError  the checkpoint is
/// truncated or altered; names the tensor
void verify_model_file(const std::filesystem::path& checkpoint, const SafetensorsFile& content);

}  // namespace farandole::trainer
