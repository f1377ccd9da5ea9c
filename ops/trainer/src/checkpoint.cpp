#include "farandole/trainer/checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "durable_file.h"
#include "farandole/core/error.h"
#include "manifest.h"
#include "safetensors.h"

namespace farandole::trainer {
namespace {

namespace fs = std::filesystem;
using Tensors = std::span<const CheckpointTensor>;
using Options = std::vector<std::pair<std::string, std::string>>;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kAsidePrefix = ".farandole-writing-";
constexpr const char* kManifest = "manifest.json";
constexpr std::uintmax_t kMostManifestBytes = 64 << 20;
constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";

/// The training step of "step-000123"; -1 for other names.
std::int64_t step_of(const fs::path& checkpoint) {
  const std::string file = checkpoint.filename().string();
  if (!file.starts_with(kPrefix)) return -1;
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(file.data() + kPrefix.size(), file.data() + file.size(), step);
  return error == std::errc() && end == file.data() + file.size() ? step : -1;
}

/// Checkpoints with their training steps, oldest first.
std::vector<std::pair<std::int64_t, fs::path>> list(const fs::path& directory) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(directory, missing)) {
    const std::int64_t step = step_of(entry.path());
    if (step >= 0 && fs::exists(entry.path() / kManifest)) found.emplace_back(step, entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void compare_options(const fs::path& checkpoint, const Options& stored, const Options& expected) {
  for (const auto& [option, value] : expected) {
    const auto entry = std::find_if(stored.begin(), stored.end(),
                                    [&wanted = option](const auto& each) { return each.first == wanted; });
    const std::string found = entry == stored.end() ? "nothing" : entry->second;
    if (found != value) {
      throw InvalidArgument(fmt::format(
          "{} was written with {} {}, but this training has {}; resume with the same, or without a checkpoint",
          checkpoint.string(), option, found, value));
    }
  }
}

std::string describe_tensor(const std::string& name, const Shape& shape, std::string_view dtype) {
  return fmt::format("'{}' of shape {} and type {}", name, describe(shape), dtype);
}

/// Compares what the manifest lists with what the model has.
void compare_layout(const fs::path& checkpoint, const std::vector<Manifest::Tensor>& stored, Tensors expected) {
  constexpr const char* kNothing = "nothing";
  for (std::size_t i = 0; i < std::max(stored.size(), expected.size()); ++i) {
    std::string theirs = kNothing, ours = kNothing;
    if (i < stored.size()) theirs = describe_tensor(stored[i].name, stored[i].shape, stored[i].dtype);
    if (i < expected.size()) {
      ours = describe_tensor(expected[i].name, expected[i].shape, name(expected[i].values.dtype));
    }
    if (theirs != ours) {
      throw InvalidArgument(fmt::format("{} is a checkpoint of another model: its tensor {} is {}, the model's is {}",
                                        checkpoint.string(), i, theirs, ours));
    }
  }
}

/// Compares the tensors of a file with the manifest. @param expected  agrees with the manifest in names and shapes
void verify_tensors(const fs::path& file, const SafetensorsFile& content, const std::vector<Manifest::Tensor>& stored,
                    Tensors expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const CheckpointTensor& tensor = expected[i];
    const SafetensorsFile::Entry* entry = content.find(tensor.name);
    if (entry == nullptr) throw DataError(fmt::format("{}: tensor '{}' is missing", file.string(), tensor.name));
    if (entry->shape != tensor.shape || entry->dtype != tensor.values.dtype) {
      throw DataError(fmt::format("{}: tensor {} should be {} by the manifest; the file is altered", file.string(),
                                  describe_tensor(entry->name, entry->shape, name(entry->dtype)),
                                  describe_tensor(tensor.name, tensor.shape, name(tensor.values.dtype))));
    }
    const std::string& wanted = stored[i].crc32;
    const std::string found = crc32_text(entry->bytes);
    if (wanted != found) {
      throw DataError(
          fmt::format("{}: tensor '{}' is altered: its checksum is {}, the manifest says {}. Remove {} to resume from "
                      "an older checkpoint",
                      file.string(), tensor.name, found, wanted, file.parent_path().string()));
    }
  }
}

void copy_tensors(const SafetensorsFile& content, Tensors into) {
  for (const CheckpointTensor& tensor : into) {
    const auto bytes = content.find(tensor.name)->bytes;
    std::memcpy(tensor.values.data, bytes.data(), bytes.size());
  }
}

/// A directory that is removed unless it is moved to its place.
class Aside {
 public:
  explicit Aside(fs::path path) : path_(std::move(path)) { fs::create_directory(path_); }
  ~Aside() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  const fs::path& path() const { return path_; }
  void move_to(const fs::path& target) { fs::rename(path_, target); }

 private:
  fs::path path_;
};

}  // namespace

CheckpointStore::CheckpointStore(fs::path directory, int keep) : directory_(std::move(directory)), keep_(keep) {
  if (keep_ < 1) throw InvalidArgument(fmt::format("keeping {} checkpoints; at least 1", keep_));
}

void CheckpointStore::prepare() {
  try {
    fs::create_directories(directory_);
    for (const auto& entry : fs::directory_iterator(directory_)) {
      if (entry.path().filename().string().starts_with(kAsidePrefix)) fs::remove_all(entry.path());
    }
  } catch (const fs::filesystem_error& error) {
    throw DataError(fmt::format("checkpoint directory {} cannot be used: {}", directory_.string(), error.what()));
  }
}

std::optional<fs::path> CheckpointStore::latest() const {
  const auto found = list(directory_);
  if (found.empty()) return std::nullopt;
  return found.back().second;
}

void CheckpointStore::save(const CheckpointState& state, Tensors model, Tensors optimizer) const {
  const std::string step = fmt::format("{}{:06}", kPrefix, state.training_step);
  const fs::path target = directory_ / step;
  if (fs::exists(target)) throw DataError(target.string() + " exists already; checkpoints are never overwritten");
  try {
    Aside aside(directory_ / fmt::format("{}{}-{}", kAsidePrefix, step, ::getpid()));
    write_safetensors(aside.path() / kModelFile, model);
    write_safetensors(aside.path() / kOptimizerFile, optimizer);
    DurableFile manifest(aside.path() / kManifest);
    manifest.write(write_manifest(state, model, optimizer));
    manifest.commit();
    synchronize_directory(aside.path());
    aside.move_to(target);
    synchronize_directory(directory_);
  } catch (const std::exception& error) {
    throw DataError(fmt::format("checkpoint {} could not be written: {}. Older checkpoints are untouched",
                                target.string(), error.what()));
  }
  remove_old();
}

void CheckpointStore::remove_old() const {
  const auto found = list(directory_);
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep_) < found.size(); ++i) {
    // Renamed first: a checkpoint is complete or not there, also while it is being removed.
    const fs::path aside = directory_ / fmt::format("{}removed-{}", kAsidePrefix, found[i].second.filename().string());
    fs::rename(found[i].second, aside);
    fs::remove_all(aside);
  }
}

CheckpointState CheckpointStore::load(const fs::path& checkpoint, const Options& options, Tensors model,
                                      Tensors optimizer) const {
  const std::vector<std::byte> text = read_file(checkpoint / kManifest, kMostManifestBytes);
  const Manifest manifest =
      parse_manifest({reinterpret_cast<const char*>(text.data()), text.size()}, (checkpoint / kManifest).string());
  compare_layout(checkpoint, manifest.model, model);
  compare_options(checkpoint, manifest.state.options, options);
  compare_layout(checkpoint, manifest.optimizer, optimizer);
  const SafetensorsFile model_file(checkpoint / kModelFile);
  const SafetensorsFile optimizer_file(checkpoint / kOptimizerFile);
  verify_tensors(checkpoint / kModelFile, model_file, manifest.model, model);
  verify_tensors(checkpoint / kOptimizerFile, optimizer_file, manifest.optimizer, optimizer);
  copy_tensors(model_file, model);
  copy_tensors(optimizer_file, optimizer);
  CheckpointState state = manifest.state;
  state.options = options;
  return state;
}

}  // namespace farandole::trainer
