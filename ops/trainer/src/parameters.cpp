// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/parameters.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
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

/// Compares names and shapes. @throws InvalidArgument
void check_tensors(const fs::path& file, const SafetensorsFile& content, const std::vector<CheckpointTensor>& model) {
  for (const CheckpointTensor& tensor : model) {
    const SafetensorsFile::Entry* const entry = content.find(tensor.name);
    if (entry != nullptr && entry->shape == tensor.shape) continue;
    throw InvalidArgument(
        fmt::format("{} has the parameters of another model: this model has {}, and the file {}", file.string(),
                    describe_named(tensor.name, tensor.shape),
                    entry == nullptr ? "has no such tensor" : describe_named(entry->name, entry->shape)));
  }
  for (const SafetensorsFile::Entry& entry : content.entries()) {
    const bool is_known = std::any_of(model.begin(), model.end(),
                                      [&](const CheckpointTensor& tensor) { return tensor.name == entry.name; });
    if (is_known) continue;
    throw InvalidArgument(fmt::format("{} has the parameters of another model: this model has no {}", file.string(),
                                      describe_named(entry.name, entry.shape)));
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

template <class Scalar>
void load(const fs::path& file, const SafetensorsFile& content, Model<Scalar>& model) {
  const std::vector<CheckpointTensor> tensors = tensors_of(model);
  check_tensors(file, content, tensors);
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

/// The checkpoint that `directory` is, or its newest.
fs::path checkpoint_of(const fs::path& directory) {
  if (is_checkpoint(directory)) return directory;
  if (const auto newest = CheckpointStore(directory, 1).latest()) return *newest;
  throw InvalidArgument(fmt::format("{} is no checkpoint, and holds no complete checkpoint", directory.string()));
}

}  // namespace

template <class Scalar>
void save_parameters(Model<Scalar>& model, const fs::path& file) {
  const fs::path temporary = fmt::format("{}.writing-{}", file.string(), ::getpid());
  std::error_code error;
  try {
    write_safetensors(temporary, tensors_of(model));
    fs::rename(temporary, file, error);
    if (error) throw DataError(fmt::format("{}: {}", file.string(), error.message()));
    synchronize_directory(file.has_parent_path() ? file.parent_path() : fs::path("."));
  } catch (const DataError&) {
    fs::remove(temporary, error);
    throw;
  }
}

template <class Scalar>
void load_parameters(const fs::path& from, Model<Scalar>& model) {
  if (!fs::is_directory(from)) return load(from, SafetensorsFile(from), model);
  const fs::path checkpoint = checkpoint_of(from);
  const SafetensorsFile content(model_file_of(checkpoint));
  verify_model_file(checkpoint, content);
  load(model_file_of(checkpoint), content, model);
}

template void save_parameters(Model<float>&, const fs::path&);
template void save_parameters(Model<double>&, const fs::path&);
template void load_parameters(const fs::path&, Model<float>&);
template void load_parameters(const fs::path&, Model<double>&);

}  // namespace farandole::trainer
