// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "checksum.h"
#include "durable_file.h"
#include "farandole/core/error.h"
#include "farandole/trainer/data_files.h"

namespace farandole::trainer {
namespace {

constexpr std::int32_t kByteSymbols = 256;
constexpr std::size_t kAscii = 128;  // characters of one byte in UTF-8

/// Length in bytes of the UTF-8 character at the beginning of `text`. 0: no character begins there.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t index) { return static_cast<unsigned char>(text[index]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t count = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < count) return 0;
  for (std::size_t i = 1; i < count; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and code points beyond U+10FFFF.
  if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f)) return 0;
  if ((first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f)) return 0;
  return count;
}

/// Calls `use(character, offset)` for each character. @throws DataError  `text` is not UTF-8
template <class Use>
void for_each_character(std::string_view text, const Use& use) {
  for (std::size_t offset = 0; offset < text.size();) {
    const std::size_t count = character_bytes(text.substr(offset));
    if (count == 0) {
      throw DataError(
          fmt::format("the text is not UTF-8: byte {} (0x{:02x}) begins no character; convert it (iconv -t "
                      "UTF-8), or use Alphabet::bytes() in a program, which takes any text",
                      offset, static_cast<unsigned char>(text[offset])));
    }
    use(text.substr(offset, count), offset);
    offset += count;
  }
}

/// Windows of a text. Symbol: std::uint8_t or std::int32_t.
template <class Symbol>
class TextWindows final : public Dataset {
 public:
  TextWindows(std::span<const std::int32_t> symbols, const TextOptions& options, const Alphabet& alphabet)
      : symbols_(symbols.begin(), symbols.end()),
        length_(options.length),
        stride_(options.stride == 0 ? options.length : options.stride),
        shape_{options.length},
        classes_(alphabet.size()),
        class_names_(alphabet.symbols()),
        checksum_(checksum_of_all()) {}

  std::int64_t size() const override {
    return (static_cast<std::int64_t>(symbols_.size()) - 1 - length_) / stride_ + 1;
  }
  const Shape& shape() const override { return shape_; }
  std::int32_t classes() const override { return classes_; }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::int64_t labels_per_sample() const override { return length_; }
  std::uint32_t checksum() const override { return checksum_; }
  void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override { write(samples, batch); }
  void gather(std::span<const std::uint32_t> samples, Batch<double>& batch) const override { write(samples, batch); }

 private:
  std::uint32_t checksum_of_all() const {
    const std::uint32_t sum = trainer::checksum(std::as_bytes(std::span(symbols_)));
    return trainer::checksum(class_names_, trainer::checksum(std::as_bytes(std::span(&stride_, 1)), sum));
  }

  template <class Scalar>
  void write(std::span<const std::uint32_t> samples, Batch<Scalar>& batch) const {
    batch.inputs.resize(static_cast<std::int64_t>(samples.size()), shape_);
    batch.targets.resize(0, {});
    batch.weights.clear();
    batch.labels.clear();
    Scalar* output = batch.inputs.data();
    for (const std::uint32_t sample : samples) {
      const auto first = symbols_.begin() + sample * stride_;
      output = std::copy_n(first, length_, output);
      batch.labels.insert(batch.labels.end(), first + 1, first + 1 + length_);
    }
  }

  const std::vector<Symbol> symbols_;
  const std::int64_t length_, stride_;
  const Shape shape_;
  const std::int32_t classes_;
  const std::vector<std::string> class_names_;
  const std::uint32_t checksum_;
};

std::shared_ptr<const Dataset> make_windows(std::span<const std::int32_t> symbols, const TextOptions& options,
                                            const Alphabet& alphabet) {
  if (alphabet.size() <= kByteSymbols)
    return std::make_shared<const TextWindows<std::uint8_t>>(symbols, options, alphabet);
  return std::make_shared<const TextWindows<std::int32_t>>(symbols, options, alphabet);
}

void check_options(const TextOptions& options) {
  if (options.length < 1 || options.stride < 0) {
    throw InvalidArgument(fmt::format("TextOptions: length is {} and stride {}; at least 1 and 0 are needed",
                                      options.length, options.stride));
  }
  if (!(options.test_fraction >= 0 && options.test_fraction < 1)) {
    throw InvalidArgument(
        fmt::format("TextOptions: test_fraction is {}; it must be at least 0 and below 1", options.test_fraction));
  }
}

void check_length(const char* set, std::size_t symbols, std::int64_t length) {
  if (static_cast<std::int64_t>(symbols) > length) return;
  throw DataError(fmt::format("the text is too short: the {} set has {} symbols, and a sample of length {} needs {}",
                              set, symbols, length, length + 1));
}

}  // namespace

Alphabet Alphabet::bytes() {
  Alphabet alphabet;
  alphabet.bytes_ = true;
  return alphabet;
}

Alphabet Alphabet::of(std::string_view text) {
  if (text.empty()) throw DataError("an empty text has no alphabet");
  Alphabet alphabet;
  std::array<bool, kAscii> seen{};
  // The order of UTF-8 by bytes is that of the code points.
  for_each_character(text, [&](std::string_view character, std::size_t) {
    if (character.size() == 1 && std::exchange(seen[static_cast<std::size_t>(character[0])], true)) return;
    if (!alphabet.numbers_.contains(character)) alphabet.numbers_.emplace(character, 0);
  });
  for (auto& [symbol, number] : alphabet.numbers_) {
    number = static_cast<std::int32_t>(alphabet.symbols_.size());
    alphabet.symbols_.push_back(symbol);
  }
  return alphabet;
}

std::vector<std::int32_t> Alphabet::encode(std::string_view text) const {
  std::vector<std::int32_t> numbers;
  numbers.reserve(text.size());
  if (bytes_) {
    for (const char byte : text) numbers.push_back(static_cast<unsigned char>(byte));
    return numbers;
  }
  std::array<std::int32_t, kAscii> known{};  // number plus 1, 0: not looked up yet; most characters of most texts
  for_each_character(text, [&](std::string_view character, std::size_t offset) {
    std::int32_t* const cached = character.size() == 1 ? &known[static_cast<std::size_t>(character[0])] : nullptr;
    if (cached != nullptr && *cached != 0) return numbers.push_back(*cached - 1);
    const auto found = numbers_.find(character);
    if (found == numbers_.end()) {
      throw DataError(
          fmt::format("byte {} of the text begins the character '{}', which the alphabet lacks", offset, character));
    }
    if (cached != nullptr) *cached = found->second + 1;
    numbers.push_back(found->second);
  });
  return numbers;
}

std::string Alphabet::decode(std::span<const std::int32_t> numbers) const {
  std::string text;
  for (const std::int32_t number : numbers) {
    if (number < 0 || number >= size()) {
      throw InvalidArgument(fmt::format("the alphabet has the symbols 0 to {}, not {}", size() - 1, number));
    }
    text += bytes_ ? std::string(1, static_cast<char>(number)) : symbols_[static_cast<std::size_t>(number)];
  }
  return text;
}

TextData text_dataset(std::string_view text, const TextOptions& options) {
  check_options(options);
  TextData data{
      .training = nullptr, .test = nullptr, .alphabet = options.alphabet ? *options.alphabet : Alphabet::of(text)};
  const std::vector<std::int32_t> symbols = data.alphabet.encode(text);
  const auto test = static_cast<std::size_t>(std::ceil(options.test_fraction * static_cast<double>(symbols.size())));
  const std::span<const std::int32_t> all(symbols);
  check_length("training", all.size() - test, options.length);
  data.training = make_windows(all.first(all.size() - test), options, data.alphabet);
  if (test == 0) return data;
  check_length("test", test, options.length);
  data.test = make_windows(all.last(test), options, data.alphabet);
  return data;
}

TextData text_file_dataset(const std::filesystem::path& file, const TextOptions& options) {
  const std::vector<std::byte> bytes = read_file(file);
  try {
    return text_dataset({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, options);
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: {}", file.string(), error.message()));
  }
}

}  // namespace farandole::trainer
