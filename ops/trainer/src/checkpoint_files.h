// SPDX-License-Identifier: Apache-2.0
// The files of a checkpoint, for readers of the model alone.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "manifest.h"
#include "safetensors.h"

namespace farandole::trainer {

/// True if `directory` is a complete checkpoint.
bool is_checkpoint(const std::filesystem::path& directory);
/// The checkpoint that `directory` is, or its newest complete one. @throws InvalidArgument  there is none
std::filesystem::path checkpoint_of(const std::filesystem::path& directory);
/// The file of parameters and statistics of a checkpoint, and the file of the optimizer's states.
std::filesystem::path model_file_of(const std::filesystem::path& checkpoint);
std::filesystem::path optimizer_file_of(const std::filesystem::path& checkpoint);
/// @throws DataError  the manifest cannot be read, is truncated or altered
Manifest read_manifest(const std::filesystem::path& checkpoint);
/// Compares the tensors of a file with the checksums of the manifest's tensors `stored`. @throws DataError  the
/// checkpoint is truncated or altered; names the tensor
void verify_file(const std::filesystem::path& file, const SafetensorsFile& content,
                 const std::vector<Manifest::Tensor>& stored);
/// A sentence about two models: "The checkpoint's model is …; this model is …". Empty if the checkpoint has no
/// description.
std::string compare_models(const std::optional<ModelDescription>& stored, const std::optional<ModelDescription>& ours);

}  // namespace farandole::trainer
