// SPDX-License-Identifier: Apache-2.0
// Layout of a file: "\x93NUMPY", the version (two bytes), the length of the header (u16 in version 1, u32 in version 2,
// little-endian), the header, which is a dictionary of Python, and the data. Source: numpy.lib.format.
#include "npy_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "checksum.h"
#include "farandole/core/error.h"

namespace farandole::trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are read as they are in the file");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxAxes = 32;  // as in NumPy

struct TypeRow {
  NpyType type;
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array kTypes{TypeRow{NpyType::kF4, "<f4", 4}, TypeRow{NpyType::kF8, "<f8", 8},
                            TypeRow{NpyType::kU1, "|u1", 1}, TypeRow{NpyType::kI4, "<i4", 4},
                            TypeRow{NpyType::kI8, "<i8", 8}};

const TypeRow& row_of(NpyType type) {
  return *std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& row) { return row.type == type; });
}

/// Scanner of the dictionary in a header, such as {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 784), }.
class DictionaryScanner {
 public:
  explicit DictionaryScanner(std::string_view text) : rest_(text) {}

  /// Skips spaces, then `token`. Returns false if something else follows.
  bool take(std::string_view token) {
    const std::size_t first = rest_.find_first_not_of(" \n");
    rest_.remove_prefix(std::min(first, rest_.size()));
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  bool take_string(std::string_view& value) {
    for (const std::string_view quote : {"'", "\""}) {
      if (!take(quote)) continue;
      const std::size_t end = rest_.find(quote);
      if (end == std::string_view::npos) return false;
      value = rest_.substr(0, end);
      rest_.remove_prefix(end + 1);
      return true;
    }
    return false;
  }

  /// A tuple of whole numbers: (), (3,), (3, 4).
  bool take_shape(Shape& shape) {
    if (!take("(")) return false;
    while (!take(")")) {
      std::int64_t extent = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), extent);
      if (error != std::errc() || extent < 0 || shape.size() == kMaxAxes) return false;
      shape.push_back(extent);
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      if (!take(",")) return take(")");
    }
    return true;
  }

  bool at_end() { return take("") && rest_.empty(); }

 private:
  std::string_view rest_;
};

/// The dictionary of a header.
struct Dictionary {
  std::string_view type;
  bool fortran_order = false;
  Shape shape;
};

bool parse(DictionaryScanner scanner, Dictionary& dictionary) {
  bool has_type = false, has_order = false, has_shape = false;
  if (!scanner.take("{")) return false;
  while (!scanner.take("}")) {
    std::string_view key;
    if (!scanner.take_string(key) || !scanner.take(":")) return false;
    if (key == "descr" && !has_type) {
      has_type = scanner.take_string(dictionary.type);
      if (!has_type) return false;
    } else if (key == "fortran_order" && !has_order) {
      dictionary.fortran_order = scanner.take("True");
      if (!dictionary.fortran_order && !scanner.take("False")) return false;
      has_order = true;
    } else if (key == "shape" && !has_shape) {
      has_shape = scanner.take_shape(dictionary.shape);
      if (!has_shape) return false;
    } else {
      return false;
    }
    if (scanner.take(",")) continue;
    if (!scanner.take("}")) return false;
    break;
  }
  return has_type && has_order && has_shape && scanner.at_end();
}

/// Number of elements. @throws DataError  0, or more than fit into `max_elements`
std::size_t count_elements(const Shape& shape, std::size_t max_elements, const std::string& name) {
  if (shape.empty()) throw DataError(fmt::format("{}: holds a single number; expected an array of samples", name));
  std::size_t count = 1;
  for (const std::int64_t extent : shape) {
    const auto factor = static_cast<std::size_t>(extent);
    if (factor == 0) throw DataError(fmt::format("{}: an array of shape {} has no elements", name, describe(shape)));
    if (factor > max_elements / count) {
      throw DataError(fmt::format("{}: the file is too short for an array of shape {}; it is truncated or corrupt",
                                  name, describe(shape)));
    }
    count *= factor;
  }
  return count;
}

}  // namespace

std::string_view name(NpyType type) {
  return row_of(type).name;
}

NpyHeader parse_npy_header(std::span<const std::byte> bytes, const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t version_end = kMagic.size() + 2;
  if (!text.starts_with(kMagic) || text.size() < version_end) {
    throw DataError(fmt::format("{}: not a file of numpy.save, by its first bytes", name));
  }
  const int version = text[kMagic.size()];
  if (version != 1 && version != 2) {
    throw DataError(fmt::format("{}: version {} of NumPy's format; 1 and 2 are supported", name, version));
  }
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  std::uint32_t length = 0;
  if (text.size() >= version_end + length_bytes) std::memcpy(&length, bytes.data() + version_end, length_bytes);
  if (text.size() < version_end + length_bytes || text.size() - version_end - length_bytes < length) {
    throw DataError(fmt::format("{}: the header is cut; the file is truncated or corrupt", name));
  }
  Dictionary dictionary;
  if (!parse(DictionaryScanner(text.substr(version_end + length_bytes, length)), dictionary)) {
    throw DataError(
        fmt::format("{}: the header is no dictionary with descr (a simple type), fortran_order and shape", name));
  }
  const auto row = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& known) {
    return known.name == dictionary.type || (known.type == NpyType::kU1 && dictionary.type == "<u1");
  });
  if (row == kTypes.end()) {
    throw DataError(
        fmt::format("{}: elements of type {}; f4, f8, u1, i4 and i8 in little-endian order are supported: "
                    "convert the array with astype",
                    name, dictionary.type));
  }
  if (dictionary.fortran_order) {
    throw DataError(fmt::format("{}: the array is in Fortran order; save numpy.ascontiguousarray(array)", name));
  }
  NpyHeader header{.type = row->type, .shape = dictionary.shape, .header_bytes = version_end + length_bytes + length};
  const std::size_t data_bytes = text.size() - header.header_bytes;
  header.data_bytes = count_elements(header.shape, data_bytes / row->bytes, name) * row->bytes;
  if (header.data_bytes != data_bytes) {
    throw DataError(
        fmt::format("{}: an array of shape {} and type {} takes {} bytes, but the file has {}; it is corrupt", name,
                    describe(header.shape), row->name, header.data_bytes, data_bytes));
  }
  return header;
}

NpyFile::NpyFile(const std::filesystem::path& file) : name_(file.string()) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  void* memory = MAP_FAILED;
  if (descriptor >= 0 && ::fstat(descriptor, &status) == 0) {
    const auto size = static_cast<std::size_t>(std::max<off_t>(status.st_size, 1));  // mmap refuses 0 bytes
    memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  }
  const int reason = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (memory == MAP_FAILED) throw DataError(fmt::format("cannot map {}: {}", name_, std::strerror(reason)));
  bytes_ = {static_cast<const std::byte*>(memory), static_cast<std::size_t>(status.st_size)};
  try {
    header_ = parse_npy_header(bytes_, name_);
  } catch (...) {
    ::munmap(memory, std::max<std::size_t>(bytes_.size(), 1));
    throw;
  }
}

NpyFile::~NpyFile() {
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

template <class To>
void NpyFile::copy(std::int64_t first, std::int64_t count, To* to) const {
  const auto convert = [&]<class From>(From) {
    const std::byte* from = data().data() + static_cast<std::size_t>(first) * sizeof(From);
    for (std::int64_t i = 0; i < count; ++i) {
      From value;  // elements may lie at any address
      std::memcpy(&value, from + static_cast<std::size_t>(i) * sizeof(From), sizeof(From));
      to[i] = static_cast<To>(value);
    }
  };
  switch (header_.type) {
    case NpyType::kF4:
      return convert(float{});
    case NpyType::kF8:
      return convert(double{});
    case NpyType::kU1:
      return convert(std::uint8_t{});
    case NpyType::kI4:
      return convert(std::int32_t{});
    case NpyType::kI8:
      return convert(std::int64_t{});
  }
}
template void NpyFile::copy(std::int64_t, std::int64_t, float*) const;
template void NpyFile::copy(std::int64_t, std::int64_t, double*) const;
template void NpyFile::copy(std::int64_t, std::int64_t, std::int64_t*) const;

std::uint32_t NpyFile::checksum(std::uint32_t before) const {
  constexpr std::size_t kBlockBytes = 4096, kBlocks = 64;
  const std::uint64_t size = bytes_.size();
  std::uint32_t sum = trainer::checksum(std::as_bytes(std::span(&size, 1)), before);
  sum = trainer::checksum(bytes_.first(header_.header_bytes), sum);
  if (data().size() <= kBlocks * kBlockBytes) return trainer::checksum(data(), sum);
  for (std::size_t block = 0; block < kBlocks; ++block) {
    const std::size_t last = data().size() - kBlockBytes;
    sum = trainer::checksum(data().subspan(last / (kBlocks - 1) * block, kBlockBytes), sum);
  }
  return trainer::checksum(data().last(kBlockBytes), sum);
}

}  // namespace farandole::trainer
