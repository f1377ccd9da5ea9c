// SPDX-License-Identifier: Apache-2.0
// Datasets of files: folders of images, tables of text, CIFAR-10, arrays of NumPy, and texts. Every function here
// returns a Dataset, which is thread-safe and can be shared by all replicas of a process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "farandole/core/export.h"
#include "farandole/trainer/dataset.h"

namespace farandole FARANDOLE_API {
namespace trainer {

// ---- Images

struct ImageFolderOptions {
  std::int64_t height = 224, width = 224;  ///< of a sample, in pixels
  /// 3: red, green, blue. 1: grey, which is 0.299 red + 0.587 green + 0.114 blue.
  std::int64_t channels = 3;
  /// Conversion of bytes to numbers. Empty: b / 255. One entry: for all channels. Otherwise one for each channel.
  std::vector<Normalization> normalization = {};
  /// Names of the sub-folders, in the order of their classes. Empty: all sub-folders, sorted by name (bytes). Give the
  /// training set's `class_names()` for a test set, so that a class has the same number in both. A class that is named
  /// here and has no folder has no samples; a folder that is not named here is an error.
  std::vector<std::string> classes = {};
};

/// Makes a dataset of the images below `directory`, in which each sub-folder holds the images of one class:
///
///     const auto training = image_folder("flowers/train", {.height = 64, .width = 64});
///     const auto test = image_folder("flowers/test", {.height = 64, .width = 64, .classes = training->class_names()});
///     training->class_names()  // {"daisy", "rose", "tulip"}: the images of flowers/train/rose have class 1
///
/// A sample is an image, {height, width, channels}. The image is resized so that it covers height x width, with its
/// proportions kept, by bilinear interpolation (with a wider filter where the image shrinks, as Pillow does), and then
/// cut at the centre. Images are decoded at each `gather` and not kept, so data may be larger than memory; a
/// million pixels cost about 15 ms.
///
/// Files named .png, .jpg and .jpeg (in any case) are images, at any depth below a class's folder; other files, and
/// files and folders whose name begins with a dot, are ignored. The first bytes tell the format. Palettes, grey images
/// and 16 bit are converted; an alpha channel is dropped; CMYK is converted without its colour profile; of an animated
/// PNG the default image is used. Orientation in EXIF is ignored. JPEG with 12 bit, and lossless JPEG, are refused.
///
/// `checksum()` covers names, sizes, classes and the normalization, not the pixels: reading all files would take too
/// long. Cost of the call: it lists the files, and reads the first bytes of each.
/// @throws InvalidArgument  an option is out of range
/// @throws DataError  there is no such directory, no class, or no image; or an image has other first bytes than PNG and
/// JPEG. `gather` throws DataError with the file and the reason if an image is truncated or corrupt.
std::shared_ptr<const Dataset> image_folder(const std::filesystem::path& directory,
                                            const ImageFolderOptions& options = {});

/// Reads CIFAR-10's binary version: data_batch_1.bin to data_batch_5.bin, and test_batch.bin. Samples are {32, 32, 3},
/// with the mean and deviation of the training images for each channel; classes have names. Holds the images in memory
/// as bytes: 184 MB.
/// @param directory  that of the files, or its parent
/// @throws DataError  a file is missing (the text says where to get CIFAR-10), truncated or corrupt
TrainingData load_cifar10(const std::filesystem::path& directory);

// ---- Tables

/// A column of a table: its name in the header, or its 0-based index.
using CsvColumn = std::variant<std::string, std::int64_t>;

struct CsvOptions {
  bool header = true;    ///< true: the first row has the names of the columns
  char separator = ',';  ///< not a quote or an end of line
  /// Columns of the input, in this order. Empty: all columns that the options below do not use, in the file's order.
  std::vector<CsvColumn> inputs = {};
  std::vector<CsvColumn> targets = {};  ///< columns of numbers to predict
  /// Column of the class. If every entry is a whole number of at least 0, that is the class, and `classes()` is the
  /// largest plus 1. Otherwise the different entries, sorted by their bytes, are the names of the classes.
  std::optional<CsvColumn> label = {};
  std::optional<CsvColumn> weight = {};  ///< column of the samples' weights: at least 0
  /// Entries of the column `label`, in the order of their classes; empty: found in the file. Give the training set's
  /// `class_names()` for a test set, so that a class has the same number in both.
  std::vector<std::string> classes = {};
};

/// Reads a table of text, such as CSV (RFC 4180) or TSV, into memory:
///
///     const auto houses = csv_dataset("houses.csv", {.targets = {"price"}});
///     const auto irises = csv_dataset("iris.tsv", {.separator = '\t', .inputs = {"length", "width"}, .label =
///     "species"});
///
/// A sample is a row. Inputs have the shape {columns}, and so have targets. A field may be quoted ("a ""b"", c"), and
/// may then contain separators and ends of lines. Spaces and tabs around a field without quotes do not count; empty
/// lines are skipped. Numbers are written as in C: 1, -2.5, 3e-4. Rows have as many fields as the first row. Cost:
/// about 100 MB of text per second; while it reads, the text is in memory beside the numbers.
/// @throws InvalidArgument  the options name a column that the file does not have, or a column twice
/// @throws DataError  the file cannot be read, has no rows, or is wrong at a place: the text names line, column, and
/// the entry. A missing value, nan and inf are wrong.
std::shared_ptr<const Dataset> csv_dataset(const std::filesystem::path& file, const CsvOptions& options = {});

// ---- Arrays

/// Files of NumPy (`numpy.save`), each with the samples along the first axis.
struct ArrayFiles {
  /// {samples, …}: a sample has the shape of the remaining axes, or {1} if there are none.
  std::filesystem::path inputs;
  /// Conversion of inputs of type u1, as in `Samples`; not for other types.
  std::vector<Normalization> normalization = {};
  std::filesystem::path labels = {};  ///< u1, i4 or i8; {samples} or {samples, labels per sample}; empty: no classes
  std::int32_t classes = 0;           ///< number of classes; needed with `labels`
  std::vector<std::string> class_names = {};
  std::filesystem::path targets = {};  ///< {samples, …}; empty: no targets
  std::filesystem::path weights = {};  ///< f4 or f8, {samples}; empty: every sample counts once
};

/// Makes a dataset of files of NumPy that stay on the disk: the system maps them into memory and loads the parts that
/// are used, so data may be larger than memory.
///
///     numpy.save("x.npy", x)   # float32, {60000, 28, 28, 1}
///     numpy.save("y.npy", y)   # int64, {60000}
///
///     const auto data = memory_mapped_dataset({.inputs = "x.npy", .labels = "y.npy", .classes = 10});
///
/// The files have version 1 or 2 of the format, C order, and elements of type f4, f8, u1, i4 or i8, little-endian.
/// Inputs of type u1 are bytes of images, converted by `normalization`; store indices of an `embedding` as i4. Labels
/// and weights are checked when they are gathered. The files must not change while the dataset exists: the system ends
/// a program that uses a page which a shorter file no longer has. `checksum()` covers each file's header, size, and up
/// to 64 blocks of 4096 bytes from its beginning to its end.
/// @throws InvalidArgument  `inputs` or `classes` is missing, or is given without need; a normalization is wrong
/// @throws DataError  a file cannot be opened, is of another format, order, type or shape, or is truncated; numbers of
/// samples differ. `gather` throws DataError if a label or a weight is out of range.
std::shared_ptr<const Dataset> memory_mapped_dataset(const ArrayFiles& files);

// ---- Texts

/// Symbols of a text, and their numbers. A symbol is a byte or a character (a code point of UTF-8).
///
///     const auto alphabet = Alphabet::of("hello");   // e, h, l, o
///     alphabet.encode("hole")                        // {1, 3, 2, 0}
///     alphabet.decode(std::vector<std::int32_t>{1, 0})  // "he"
///
/// Thread-safe.
class Alphabet {
 public:
  /// All 256 bytes: symbol i is byte i.
  static Alphabet bytes();
  /// The characters of `text`, in the order of their code points. @throws DataError  `text` is not UTF-8, or is empty
  static Alphabet of(std::string_view text);

  std::int32_t size() const { return bytes_ ? 256 : static_cast<std::int32_t>(symbols_.size()); }
  /// Each symbol as a text; empty for `bytes()`.
  const std::vector<std::string>& symbols() const { return symbols_; }
  /// Returns the number of each symbol of `text`. @throws DataError  `text` is not UTF-8, or has a symbol that the
  /// alphabet lacks: the message names the symbol and its byte
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// Returns the text of the symbols. @throws InvalidArgument  a number is not in [0, size())
  std::string decode(std::span<const std::int32_t> numbers) const;

 private:
  Alphabet() = default;

  bool bytes_ = false;
  std::vector<std::string> symbols_;
  std::map<std::string, std::int32_t, std::less<>> numbers_;
};

struct TextOptions {
  std::int64_t length = 128;  ///< number of symbols in a sample's input, at least 1
  /// Distance between the beginnings of two samples, in symbols, at least 1; 0: `length`, so that samples do not
  /// overlap.
  std::int64_t stride = 0;
  std::optional<Alphabet> alphabet = {};  ///< empty: the characters of the text; `Alphabet::bytes()`: bytes
  /// Share of the text, at its end, that becomes the test set: at least 0, below 1. 0: there is no test set.
  double test_fraction = 0.1;
};

/// Samples of a text, and the alphabet that turns a model's outputs into text.
struct TextData {
  std::shared_ptr<const Dataset> training, test;  ///< `test` is null if test_fraction is 0
  Alphabet alphabet;
};

/// Cuts a text into samples for a model that predicts the next symbol. A sample is a window of `length` symbols: inputs
/// are the numbers of the symbols, {length}, as `embedding` needs them; the label of each position is the next symbol,
/// so `labels_per_sample()` is `length`, `classes()` is the size of the alphabet, and the model's output is {length,
/// classes}.
///
///     const TextData poems = text_file_dataset("poems.txt", {.length = 64});
///     layers.push_back(embedding<float>(poems.alphabet.size(), 128));
///     …
///     Trainer<float> trainer(communicator, model, poems.training, poems.test, options);
///
/// Training and test set have no symbol in common. The end of each that fills no window is not used. Holds the symbols
/// in memory: a byte for each, or four if the alphabet has more than 256 symbols.
/// @throws InvalidArgument  an option is out of range
/// @throws DataError  the text is too short for one sample of each set, or is not UTF-8, or has a symbol that a given
/// alphabet lacks
TextData text_dataset(std::string_view text, const TextOptions& options = {});
/// The same for the text of a file. @throws DataError  also if the file cannot be read; names the file
TextData text_file_dataset(const std::filesystem::path& file, const TextOptions& options = {});

}  // namespace trainer
}  // namespace FARANDOLE_API
