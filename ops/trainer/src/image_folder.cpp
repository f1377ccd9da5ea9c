// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <utility>

#include "byte_values.h"
#include "checksum.h"
#include "durable_file.h"
#include "farandole/core/error.h"
#include "farandole/trainer/data_files.h"
#include "image.h"

namespace farandole::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxExtent = 1 << 15;  // pixels
constexpr std::uintmax_t kMaxImageBytes = std::uintmax_t{1} << 30;

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

bool is_image_name(const fs::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

[[noreturn]] void fail_to_list(const fs::path& directory, const std::error_code& error) {
  throw DataError(fmt::format("cannot list {}: {}", directory.string(), error.message()));
}

/// Names of the sub-folders of `directory`, sorted.
std::vector<std::string> list_folders(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_directory(ignored) && !is_hidden(entry->path())) names.push_back(entry->path().filename().string());
  }
  if (error) fail_to_list(directory, error);
  std::sort(names.begin(), names.end());
  return names;
}

/// Paths of the images below `directory`, relative to it, sorted.
std::vector<std::string> list_images(const fs::path& directory) {
  std::vector<std::string> images;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_directory(ignored)) {
      if (is_hidden(entry->path())) entry.disable_recursion_pending();
    } else if (!is_hidden(entry->path()) && is_image_name(entry->path())) {
      images.push_back(entry->path().lexically_relative(directory).string());
    }
  }
  if (error) fail_to_list(directory, error);
  std::sort(images.begin(), images.end());
  return images;
}

/// Returns the size of an image's file in bytes, and checks the first bytes. @throws DataError
std::int64_t check_signature(const fs::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  std::array<std::byte, kImageSignatureBytes> first{};
  struct stat status {};
  ssize_t got = -1;
  if (descriptor >= 0 && ::fstat(descriptor, &status) == 0) got = ::read(descriptor, first.data(), first.size());
  const int reason = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (got < 0) throw DataError(fmt::format("cannot read {}: {}", file.string(), std::strerror(reason)));
  if (format_of(std::span(first).first(static_cast<std::size_t>(got))) == ImageFormat::kUnknown) {
    throw DataError(fmt::format("{}: neither PNG nor JPEG, by its first bytes; remove the file, or convert the image",
                                file.string()));
  }
  return status.st_size;
}

void check_options(const ImageFolderOptions& options) {
  for (const std::int64_t extent : {options.height, options.width}) {
    if (extent >= 1 && extent <= kMaxExtent) continue;
    throw InvalidArgument(fmt::format("image_folder: height {} and width {}; both must be 1 to {}", options.height,
                                      options.width, kMaxExtent));
  }
  if (options.channels != 1 && options.channels != 3) {
    throw InvalidArgument(
        fmt::format("image_folder: {} channels; 1 (grey) and 3 (red, green, blue) are possible", options.channels));
  }
  if (!options.classes.empty()) check_class_names(options.classes, static_cast<std::int32_t>(options.classes.size()));
}

class ImageFolder final : public Dataset {
 public:
  ImageFolder(fs::path directory, const ImageFolderOptions& options)
      : directory_(std::move(directory)),
        shape_{options.height, options.width, options.channels},
        values_(options.normalization, shape_),
        class_names_(options.classes) {
    const std::vector<std::string> folders = list_folders(directory_);
    if (class_names_.empty()) class_names_ = folders;
    check_folders(folders);
    checksum_ = trainer::checksum(class_names_, values_.checksum(0));
    for (std::size_t index = 0; index < class_names_.size(); ++index) {
      if (std::binary_search(folders.begin(), folders.end(), class_names_[index])) {
        add_class(class_names_[index], static_cast<std::int32_t>(index));
      }
    }
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  const Shape& shape() const override { return shape_; }
  std::int32_t classes() const override { return static_cast<std::int32_t>(class_names_.size()); }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::uint32_t checksum() const override { return checksum_; }
  void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override { write(samples, batch); }
  void gather(std::span<const std::uint32_t> samples, Batch<double>& batch) const override { write(samples, batch); }

 private:
  struct File {
    std::string path;  // relative to the directory
    std::int32_t label = 0;
  };

  void check_folders(const std::vector<std::string>& folders) const {
    if (folders.empty()) {
      throw DataError(
          fmt::format("{} has no sub-folders; expected a sub-folder of images for each class", directory_.string()));
    }
    for (const std::string& folder : folders) {
      if (std::find(class_names_.begin(), class_names_.end(), folder) != class_names_.end()) continue;
      throw DataError(
          fmt::format("{} has the sub-folder '{}', which is none of the {} classes of the "
                      "training data (ImageFolderOptions::classes); remove it, or add the class to the training data",
                      directory_.string(), folder, class_names_.size()));
    }
  }

  void add_class(const std::string& name, std::int32_t label) {
    const std::vector<std::string> images = list_images(directory_ / name);
    if (images.empty()) {
      throw DataError(fmt::format("{} has no images (.png, .jpg, .jpeg)", (directory_ / name).string()));
    }
    for (const std::string& image : images) {
      files_.push_back({fmt::format("{}/{}", name, image), label});
      const std::int64_t bytes = check_signature(directory_ / files_.back().path);
      checksum_ = trainer::checksum({files_.back().path, std::to_string(bytes)}, checksum_);
    }
  }

  template <class Scalar>
  void write(std::span<const std::uint32_t> samples, Batch<Scalar>& batch) const {
    batch.inputs.resize(static_cast<std::int64_t>(samples.size()), shape_);
    batch.targets.resize(0, {});
    batch.weights.clear();
    batch.labels.clear();
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(elements(shape_)));
    Scalar* output = batch.inputs.data();
    for (const std::uint32_t sample : samples) {
      const File& file = files_[sample];
      const fs::path path = directory_ / file.path;
      const Image image = decode_image(read_file(path, kMaxImageBytes), path.string());
      resize_and_crop(image, shape_[0], shape_[1], shape_[2], bytes.data());
      values_.convert(std::span<const std::uint8_t>(bytes), output);
      output += bytes.size();
      batch.labels.push_back(file.label);
    }
  }

  const fs::path directory_;
  const Shape shape_;
  const ByteValues values_;
  std::vector<std::string> class_names_;
  std::vector<File> files_;
  std::uint32_t checksum_ = 0;
};

}  // namespace

std::shared_ptr<const Dataset> image_folder(const fs::path& directory, const ImageFolderOptions& options) {
  check_options(options);
  return std::make_shared<const ImageFolder>(directory, options);
}

}  // namespace farandole::trainer
