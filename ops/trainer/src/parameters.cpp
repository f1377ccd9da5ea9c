// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/parameters.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <system_error>

#include "checkpoint_files.h"
#include "durable_file.h"
#include "farandole/core/error.h"
#include "model_tensors.h"
#include "safetensors.h"

namespace farandole::trainer {
namespace {

namespace fs = std::filesystem;

std::string describe_named(const std::string& name, const Shape& shape) {
  return fmt::format("'{}' of shape {}", name, describe(shape));
}

/// Compares names and shapes. @param models  a sentence about both models for the message; may be empty
/// @throws InvalidArgument
void check_tensors(const fs::path& file, const SafetensorsFile& content, const std::vector<CheckpointTensor>& model,
                   const std::string& models) {
  const auto refuse = [&](const std::string& reason) {
    throw InvalidArgument(fmt::format("{} has the parameters of another model: {}{}", file.string(), reason,
                                      models.empty() ? "" : ". " + models));
  };
  for (const CheckpointTensor& tensor : model) {
    const SafetensorsFile::Entry* const entry = content.find(tensor.name);
    if (entry != nullptr && entry->shape == tensor.shape) continue;
    refuse(fmt::format("this model has {}, and the file {}", describe_named(tensor.name, tensor.shape),
                       entry == nullptr ? "has no such tensor" : describe_named(entry->name, entry->shape)));
  }
  for (const SafetensorsFile::Entry& entry : content.entries()) {
    const bool is_known = std::any_of(model.begin(), model.end(),
                                      [&](const CheckpointTensor& tensor) { return tensor.name == entry.name; });
    if (!is_known) refuse(fmt::format("this model has no {}", describe_named(entry.name, entry.shape)));
  }
}

template <class From, class To>
void convert(const SafetensorsFile::Entry& entry, To* output) {
  const std::byte* from = entry.bytes.data();
  for (std::size_t i = 0; i < entry.bytes.size() / sizeof(From); ++i, from += sizeof(From)) {
    From value;
    std::memcpy(&value, from, sizeof(value));
    output[i] = static_cast<To>(value);
  }
}

/// Copies tensors that the file has, with the same shapes.
template <class Scalar>
void copy(const SafetensorsFile& content, const std::vector<CheckpointTensor>& tensors) {
  for (const CheckpointTensor& tensor : tensors) {
    const SafetensorsFile::Entry& entry = *content.find(tensor.name);
    auto* const output = static_cast<Scalar*>(tensor.values.data);
    if (entry.dtype == DType::kF64) {
      convert<double>(entry, output);
    } else {
      convert<float>(entry, output);
    }
  }
}

void check_averages(const fs::path& file, const SafetensorsFile& content,
                    const std::vector<CheckpointTensor>& averages) {
  for (const CheckpointTensor& tensor : averages) {
    const SafetensorsFile::Entry* const entry = content.find(tensor.name);
    if (entry != nullptr && entry->shape == tensor.shape) continue;
    throw InvalidArgument(
        fmt::format("{} has no moving average of the parameters, or another one: this model needs {}, and the file {}; "
                    "OptimizerOptions::ema_decay makes an average",
                    file.string(), describe_named(tensor.name, tensor.shape),
                    entry == nullptr ? "has no such tensor" : "has " + describe_named(entry->name, entry->shape)));
  }
}

template <class Scalar>
void load_checkpoint(const fs::path& checkpoint, Model<Scalar>& model, const LoadOptions& options) {
  const fs::path model_file = model_file_of(checkpoint), optimizer_file = optimizer_file_of(checkpoint);
  const SafetensorsFile content(model_file);
  const Manifest manifest = read_manifest(checkpoint);
  verify_file(model_file, content, manifest.model);
  ModelOnHost<Scalar> on_host(model);
  const std::vector<CheckpointTensor> tensors = on_host.tensors();
  check_tensors(model_file, content, tensors, compare_models(manifest.state.model, model.description()));
  if (!options.average) {
    copy<Scalar>(content, tensors);
    return on_host.store();
  }
  const SafetensorsFile states(optimizer_file);
  verify_file(optimizer_file, states, manifest.optimizer);
  const std::vector<CheckpointTensor> averages = on_host.averages();
  check_averages(optimizer_file, states, averages);
  copy<Scalar>(content, tensors);
  copy<Scalar>(states, averages);
  on_host.store();
}

}  // namespace

template <class Scalar>
void save_parameters(Model<Scalar>& model, const fs::path& file) {
  static std::atomic<std::uint64_t> calls{0};  // of this process, so that threads do not write to the same file
  const fs::path temporary = fmt::format("{}.writing-{}-{}", file.string(), ::getpid(), calls++);
  std::error_code error;
  try {
    write_safetensors(temporary, ModelOnHost<Scalar>(model).tensors());
    fs::rename(temporary, file, error);
    if (error) throw DataError(fmt::format("{}: {}", file.string(), error.message()));
    synchronize_directory(file.has_parent_path() ? file.parent_path() : fs::path("."));
  } catch (const DataError&) {
    fs::remove(temporary, error);
    throw;
  }
}

template <class Scalar>
void load_parameters(const fs::path& from, Model<Scalar>& model, const LoadOptions& options) {
  if (fs::is_directory(from)) return load_checkpoint(checkpoint_of(from), model, options);
  if (options.average) {
    throw InvalidArgument(fmt::format("{} is no checkpoint; only a checkpoint has the moving average", from.string()));
  }
  const SafetensorsFile content(from);
  ModelOnHost<Scalar> on_host(model);
  const std::vector<CheckpointTensor> tensors = on_host.tensors();
  check_tensors(from, content, tensors, "");
  copy<Scalar>(content, tensors);
  on_host.store();
}

template void save_parameters(Model<float>&, const fs::path&);
template void save_parameters(Model<double>&, const fs::path&);
template void load_parameters(const fs::path&, Model<float>&, const LoadOptions&);
template void load_parameters(const fs::path&, Model<double>&, const LoadOptions&);

}  // namespace farandole::trainer
