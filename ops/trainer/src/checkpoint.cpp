// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "checkpoint_files.h"
#include "checkpoint_lock.h"
#include "durable_file.h"
#include "farandole/core/error.h"
#include "farandole/internal/log.h"
#include "manifest.h"
#include "option_texts.h"
#include "safetensors.h"

namespace farandole::trainer {
namespace {

namespace fs = std::filesystem;
using Tensors = std::span<const CheckpointTensor>;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kTemporaryPrefix = ".farandole-writing-";
constexpr const char* kManifest = "manifest.json";
constexpr std::uintmax_t kMaxManifestBytes = 64 << 20;
constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kBestLink = "best";

/// The training step of "step-000123"; -1 for other names.
std::int64_t step_of(const fs::path& checkpoint) {
  const std::string file = checkpoint.filename().string();
  if (!file.starts_with(kPrefix)) return -1;
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(file.data() + kPrefix.size(), file.data() + file.size(), step);
  return error == std::errc() && end == file.data() + file.size() ? step : -1;
}

/// All directories of checkpoints, oldest first, including incomplete checkpoints.
std::vector<fs::path> list_all(const fs::path& directory) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(directory, missing)) {
    const std::int64_t step = step_of(entry.path());
    if (step >= 0 && entry.is_directory(missing)) found.emplace_back(step, entry.path());
  }
  std::sort(found.begin(), found.end());
  std::vector<fs::path> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

/// Complete checkpoints (directories with a manifest), oldest first.
std::vector<fs::path> list(const fs::path& directory) {
  std::vector<fs::path> found = list_all(directory);
  std::erase_if(found, [](const fs::path& checkpoint) { return !is_checkpoint(checkpoint); });
  return found;
}

std::optional<fs::path> newest_of(const std::vector<fs::path>& checkpoints) {
  if (checkpoints.empty()) return std::nullopt;
  return checkpoints.back();
}

void check_names(Tensors tensors) {
  std::set<std::string> names;
  for (const CheckpointTensor& tensor : tensors) {
    if (names.insert(tensor.name).second) continue;
    throw InvalidArgument(fmt::format("a checkpoint cannot hold two tensors named '{}'", tensor.name));
  }
}

/// Renames a damaged checkpoint to a free name that `list` does not take for a checkpoint. Returns the name.
fs::path rename_damaged(const fs::path& checkpoint) {
  fs::path target = checkpoint.string() + ".damaged";
  for (int more = 2; fs::exists(target); ++more) target = fmt::format("{}.damaged-{}", checkpoint.string(), more);
  std::error_code error;
  fs::rename(checkpoint, target, error);
  if (error) {
    throw DataError(fmt::format("{} is damaged and cannot be renamed to {}: {}", checkpoint.string(), target.string(),
                                error.message()));
  }
  return target;
}

void compare_options(const fs::path& checkpoint, const OptionTexts& stored, const OptionTexts& expected) {
  for (const auto& [option, value] : expected) {
    const std::string* const entry = find_option(stored, option);
    const std::string found = entry == nullptr ? "none" : *entry;
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

/// Compares the manifest's tensors with the model's: names, shapes, types. @throws InvalidArgument  they differ
/// @param models  a sentence about both models for the message; may be empty
void compare_layout(const fs::path& checkpoint, const std::vector<Manifest::Tensor>& stored, Tensors expected,
                    const std::string& models) {
  constexpr const char* kNothing = "nothing";
  for (std::size_t i = 0; i < std::max(stored.size(), expected.size()); ++i) {
    std::string theirs = kNothing, ours = kNothing;
    if (i < stored.size()) theirs = describe_tensor(stored[i].name, stored[i].shape, stored[i].dtype);
    if (i < expected.size()) {
      ours = describe_tensor(expected[i].name, expected[i].shape, name(expected[i].values.dtype));
    }
    if (theirs != ours) {
      throw InvalidArgument(fmt::format("{} is a checkpoint of another model: its tensor {} is {}, the model's is {}{}",
                                        checkpoint.string(), i, theirs, ours, models.empty() ? "" : ". " + models));
    }
  }
}

void verify_checksum(const fs::path& file, const SafetensorsFile::Entry& entry, const std::string& wanted) {
  const std::string found = crc32_text(entry.bytes);
  if (wanted == found) return;
  throw DataError(fmt::format("{}: tensor '{}' is altered: its checksum is {}, the manifest says {}", file.string(),
                              entry.name, found, wanted));
}

/// Compares a file's tensors with the manifest. @param expected  the model's tensors, which agree with the manifest
/// @throws DataError  a tensor is missing or altered
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
    verify_checksum(file, *entry, stored[i].crc32);
  }
}

void copy_tensors(const SafetensorsFile& content, Tensors into) {
  for (const CheckpointTensor& tensor : into) {
    const auto bytes = content.find(tensor.name)->bytes;
    std::memcpy(tensor.values.data, bytes.data(), bytes.size());
  }
}

/// Removes temporary directories of interrupted writes and removals.
void remove_temporary_directories(const fs::path& directory) {
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (!entry.path().filename().string().starts_with(kTemporaryPrefix)) continue;
    std::error_code error;
    fs::remove_all(entry.path(), error);
    if (error) {
      log(LogLevel::kWarning, fmt::format("{}, which an interrupted training has left behind, cannot be removed: {}",
                                          entry.path().string(), error.message()));
    }
  }
}

/// Temporary directory; removed by the destructor unless it was moved to its final place.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(fs::path path) : path_(std::move(path)) { make_private_directory(path_); }
  ~TemporaryDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const fs::path& path() const { return path_; }
  void move_to(const fs::path& target) { fs::rename(path_, target); }

 private:
  fs::path path_;
};

}  // namespace

bool is_checkpoint(const fs::path& directory) {
  return fs::exists(directory / kManifest);
}

fs::path model_file_of(const fs::path& checkpoint) {
  return checkpoint / kModelFile;
}

fs::path optimizer_file_of(const fs::path& checkpoint) {
  return checkpoint / kOptimizerFile;
}

fs::path checkpoint_of(const fs::path& directory) {
  if (is_checkpoint(directory)) return directory;
  if (const auto newest = CheckpointStore(directory, 1).latest()) return *newest;
  throw InvalidArgument(fmt::format("{} is no checkpoint, and holds no complete checkpoint", directory.string()));
}

Manifest read_manifest(const fs::path& checkpoint) {
  const fs::path file = checkpoint / kManifest;
  const std::vector<std::byte> text = read_file(file, kMaxManifestBytes);
  return parse_manifest({reinterpret_cast<const char*>(text.data()), text.size()}, file.string());
}

void verify_file(const fs::path& file, const SafetensorsFile& content, const std::vector<Manifest::Tensor>& stored) {
  for (const Manifest::Tensor& tensor : stored) {
    const SafetensorsFile::Entry* const entry = content.find(tensor.name);
    if (entry == nullptr) throw DataError(fmt::format("{}: tensor '{}' is missing", file.string(), tensor.name));
    verify_checksum(file, *entry, tensor.crc32);
  }
}

std::string compare_models(const std::optional<ModelDescription>& stored, const std::optional<ModelDescription>& ours) {
  if (!stored || !ours) return "";
  return fmt::format("The checkpoint's model is {}; this model is {}", describe(*stored), describe(*ours));
}

LoadedCheckpoint describe_checkpoint(const fs::path& from) {
  const fs::path checkpoint = checkpoint_of(from);
  return {checkpoint, read_manifest(checkpoint).state};
}

CheckpointStore::CheckpointStore(fs::path directory, int keep) : directory_(std::move(directory)), keep_(keep) {
  if (keep_ < 1) throw InvalidArgument(fmt::format("keeping {} checkpoints; at least 1", keep_));
}

CheckpointStore::~CheckpointStore() = default;
CheckpointStore::CheckpointStore(CheckpointStore&&) noexcept = default;
CheckpointStore& CheckpointStore::operator=(CheckpointStore&&) noexcept = default;

void CheckpointStore::prepare() {
  try {
    const fs::path directory = (directory_ / "").parent_path();  // without a trailing slash
    if (!fs::is_directory(directory)) {
      if (directory.has_parent_path()) fs::create_directories(directory.parent_path());
      make_private_directory(directory);
    }
    if (!lock_ || !lock_->is_owner()) lock_ = std::make_unique<CheckpointLock>(directory);
    remove_temporary_directories(directory);
  } catch (const InvalidArgument&) {
    throw;
  } catch (const std::exception& error) {
    throw DataError(fmt::format("checkpoint directory {} cannot be used: {}", directory_.string(), message_of(error)));
  }
}

std::optional<fs::path> CheckpointStore::latest() const {
  return newest_of(list(directory_));
}

std::optional<fs::path> CheckpointStore::latest_with_incomplete() const {
  return newest_of(list_all(directory_));
}

void CheckpointStore::check_owner() const {
  if (lock_ && lock_->is_owner()) return;
  throw InvalidArgument(
      fmt::format("this process may not write to {}: prepare() takes the lock of a directory, and a forked child does "
                  "not share its "
                  "parent's",
                  directory_.string()));
}

fs::path CheckpointStore::path_of(std::int64_t training_step) const {
  return directory_ / fmt::format("{}{:06}", kPrefix, training_step);
}

void CheckpointStore::save(const CheckpointState& state, Tensors model, Tensors optimizer) {
  check_owner();
  check_names(model);
  check_names(optimizer);
  const fs::path target = path_of(state.training_step);
  if (fs::exists(target)) throw DataError(target.string() + " exists already; checkpoints are never overwritten");
  try {
    TemporaryDirectory temporary(directory_ /
                                 fmt::format("{}{}-{}", kTemporaryPrefix, target.filename().string(), ::getpid()));
    write_safetensors(temporary.path() / kModelFile, model);
    write_safetensors(temporary.path() / kOptimizerFile, optimizer);
    DurableFile manifest(temporary.path() / kManifest);
    manifest.write(write_manifest(state, model, optimizer));
    manifest.commit();
    synchronize_directory(temporary.path());
    temporary.move_to(target);
    synchronize_directory(directory_);
  } catch (const std::exception& error) {
    throw DataError(fmt::format("checkpoint {} could not be written: {}. Older checkpoints are untouched",
                                target.string(), message_of(error)));
  }
  remove_old();
}

void CheckpointStore::mark_best(std::int64_t training_step) {
  check_owner();
  const fs::path link = directory_ / kBestLink;
  try {
    // A rename replaces the link, so that a reader always finds one.
    const fs::path temporary = directory_ / fmt::format("{}{}-{}", kTemporaryPrefix, kBestLink, ::getpid());
    fs::remove(temporary);
    fs::create_directory_symlink(path_of(training_step).filename(), temporary);
    fs::rename(temporary, link);
    synchronize_directory(directory_);
  } catch (const std::exception& error) {
    throw DataError(fmt::format("the link {} could not be written: {}", link.string(), message_of(error)));
  }
  remove_old();
}

void CheckpointStore::remove_old() {
  std::vector<fs::path> found = list(directory_);
  std::error_code no_link;
  const fs::path best = fs::read_symlink(directory_ / kBestLink, no_link);
  if (!no_link) std::erase_if(found, [&](const fs::path& checkpoint) { return checkpoint.filename() == best; });
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep_) < found.size(); ++i) {
    // Rename the checkpoint before removing it, so that no reader finds a checkpoint that is partly removed.
    const fs::path temporary = directory_ / fmt::format("{}removed-{}", kTemporaryPrefix, found[i].filename().string());
    std::error_code error;
    fs::rename(found[i], temporary, error);
    if (!error) fs::remove_all(temporary, error);
    if (error && cannot_be_removed_.insert(found[i]).second) {
      log(LogLevel::kWarning, fmt::format("the old checkpoint {} cannot be removed: {}; training goes on",
                                          found[i].string(), error.message()));
    }
  }
}

LoadedCheckpoint CheckpointStore::load_newest(const OptionTexts& options, Tensors model, Tensors optimizer,
                                              const std::optional<ModelDescription>& description) {
  std::vector<fs::path> candidates = list_all(directory_);
  if (candidates.empty()) {
    throw InvalidArgument(
        fmt::format("{} holds no checkpoint to resume from; leave --resume out to begin a training there, use "
                    "--resume-if-any (CheckpointOptions::resume_if_any), or choose another directory",
                    directory_.string()));
  }
  check_owner();
  std::vector<std::pair<fs::path, std::string>> damaged;  // damaged checkpoints and the reasons
  for (; !candidates.empty(); candidates.pop_back()) {
    LoadedCheckpoint loaded{candidates.back(), {}};
    try {
      loaded.state = load(loaded.path, options, model, optimizer, description);
    } catch (const DataError& error) {
      damaged.emplace_back(loaded.path, error.message());
      continue;
    }
    for (const auto& [path, reason] : damaged) {
      log(LogLevel::kWarning, fmt::format("{} is damaged, so training resumes from {}; it is now {}. {}", path.string(),
                                          loaded.path.string(), rename_damaged(path).string(), reason));
    }
    return loaded;
  }
  std::string reasons;
  for (const auto& [path, reason] : damaged) reasons += (reasons.empty() ? "" : "; ") + reason;
  throw DataError(fmt::format("no checkpoint of {} is whole: {}. Begin a new training in another directory",
                              directory_.string(), reasons));
}

CheckpointState CheckpointStore::load(const fs::path& checkpoint, const OptionTexts& options, Tensors model,
                                      Tensors optimizer, const std::optional<ModelDescription>& description) const {
  const Manifest manifest = read_manifest(checkpoint);
  const std::string models = compare_models(manifest.state.model, description);
  compare_layout(checkpoint, manifest.model, model, models);
  compare_options(checkpoint, manifest.state.options, options);
  compare_layout(checkpoint, manifest.optimizer, optimizer, models);
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
