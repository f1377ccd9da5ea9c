// SPDX-License-Identifier: Apache-2.0
// CIFAR-10's binary version: records of a byte with the class and 3072 bytes with the pixels, all red ones first, then
// green and blue. Source: Krizhevsky, "Learning multiple layers of features from tiny images", 2009, and its web page.
#include <fmt/format.h>

#include <array>
#include <utility>

#include "durable_file.h"
#include "farandole/core/error.h"
#include "farandole/trainer/data_files.h"

namespace farandole::trainer {
namespace {

constexpr std::size_t kSide = 32, kChannels = 3, kPixels = kSide * kSide, kRecordBytes = 1 + kChannels * kPixels;
constexpr const char* kSubfolder = "cifar-10-batches-bin";

const std::vector<std::string>& names_of_classes() {
  static const std::vector<std::string> names{"airplane", "automobile", "bird",  "cat",  "deer",
                                              "dog",      "frog",       "horse", "ship", "truck"};
  return names;
}

/// Appends the records of a file. @throws DataError
void append(const std::filesystem::path& file, std::vector<std::uint8_t>& images, std::vector<std::int32_t>& labels) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) {
    throw DataError(
        fmt::format("{}: no such file. Get CIFAR-10's binary version, cifar-10-binary.tar.gz, from "
                    "https://www.cs.toronto.edu/~kriz/cifar.html, unpack it, and name its directory",
                    file.string()));
  }
  const std::vector<std::byte> bytes = read_file(file);
  if (bytes.empty() || bytes.size() % kRecordBytes != 0) {
    throw DataError(fmt::format("{}: {} bytes, expected a multiple of {}; the file is truncated or corrupt",
                                file.string(), bytes.size(), kRecordBytes));
  }
  for (std::size_t record = 0; record < bytes.size() / kRecordBytes; ++record) {
    const std::byte* const first = bytes.data() + record * kRecordBytes;
    const auto label = std::to_integer<std::int32_t>(*first);
    if (label >= static_cast<std::int32_t>(names_of_classes().size())) {
      throw DataError(
          fmt::format("{}: image {} has class {}, expected 0 to 9; the file is corrupt", file.string(), record, label));
    }
    labels.push_back(label);
    for (std::size_t pixel = 0; pixel < kPixels; ++pixel) {
      for (std::size_t channel = 0; channel < kChannels; ++channel) {
        images.push_back(std::to_integer<std::uint8_t>(first[1 + channel * kPixels + pixel]));
      }
    }
  }
}

std::shared_ptr<const Dataset> load(const std::filesystem::path& directory, const std::vector<std::string>& files) {
  std::vector<std::uint8_t> images;
  std::vector<std::int32_t> labels;
  images.reserve(files.size() * 10'000 * kChannels * kPixels);
  for (const std::string& file : files) append(directory / file, images, labels);
  return memory_dataset({.shape = {kSide, kSide, kChannels},
                         .inputs = std::move(images),
                         .normalization = {{.mean = 0.4914, .deviation = 0.2470},
                                           {.mean = 0.4822, .deviation = 0.2435},
                                           {.mean = 0.4465, .deviation = 0.2616}},
                         .labels = std::move(labels),
                         .classes = static_cast<std::int32_t>(names_of_classes().size()),
                         .class_names = names_of_classes()});
}

}  // namespace

TrainingData load_cifar10(const std::filesystem::path& directory) {
  std::error_code ignored;
  const bool is_parent = std::filesystem::is_directory(directory / kSubfolder, ignored);
  const std::filesystem::path from = is_parent ? directory / kSubfolder : directory;
  std::vector<std::string> training;
  for (int part = 1; part <= 5; ++part) training.push_back(fmt::format("data_batch_{}.bin", part));
  return {.training = load(from, training), .test = load(from, {"test_batch.bin"})};
}

}  // namespace farandole::trainer
