// SPDX-License-Identifier: Apache-2.0
// Layout of a file: the length of the header (u64, little-endian); the header, which is JSON
// {"name": {"dtype", "shape", "data_offsets"}} padded with spaces to a multiple of 8 bytes; the data. Offsets count
// from the end of the header. Source: https://github.com/huggingface/safetensors, "Format".
#include "safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "durable_file.h"
#include "farandole/core/error.h"
#include "json_fields.h"

namespace farandole::trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::size_t kLengthBytes = 8;

std::string_view format_name(DType dtype) {
  if (dtype == DType::kF32) return "F32";
  if (dtype == DType::kF64) return "F64";
  throw InvalidArgument(fmt::format("tensors of type {} are not kept in checkpoints", name(dtype)));
}

SafetensorsFile::Entry parse_entry(const std::string& name, const Json& value, std::span<const std::byte> data) {
  SafetensorsFile::Entry entry;
  entry.name = name;
  entry.shape = shape_from(value.at("shape"));
  const auto dtype = value.at("dtype").get<std::string>();
  if (dtype != "F32" && dtype != "F64") {
    throw DataError(fmt::format("tensor '{}' has type {}; expected F32 or F64", name, dtype));
  }
  entry.dtype = dtype == "F32" ? DType::kF32 : DType::kF64;
  const auto first = static_cast<std::uint64_t>(count_from(value.at("data_offsets").at(0)));
  const auto end = static_cast<std::uint64_t>(count_from(value.at("data_offsets").at(1)));
  if (first > end || end - first != static_cast<std::uint64_t>(elements(entry.shape)) * size_in_bytes(entry.dtype)) {
    throw DataError(fmt::format("tensor '{}' of type {} and shape {} cannot lie at bytes {} to {}; the file is altered",
                                name, dtype, describe(entry.shape), first, end));
  }
  if (end > data.size()) {
    throw DataError(fmt::format("tensor '{}' is cut: it ends at byte {} of the data, but there are {} bytes", name, end,
                                data.size()));
  }
  entry.bytes = data.subspan(first, end - first);
  return entry;
}

/// Checks that the tensors cover the data without gaps and overlaps, as the format demands. Sorts `entries` by
/// position.
/// @throws DataError  there is a gap or an overlap
void check_order(std::vector<SafetensorsFile::Entry>& entries, std::span<const std::byte> data) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
  });
  const std::byte* next = data.data();
  for (const SafetensorsFile::Entry& entry : entries) {
    if (entry.bytes.data() != next) {
      throw DataError(fmt::format("the data of tensor '{}' begins at byte {}, the tensor before it ends at byte {}",
                                  entry.name, entry.bytes.data() - data.data(), next - data.data()));
    }
    next += entry.bytes.size();
  }
  if (next != data.data() + data.size()) {
    throw DataError(fmt::format("{} bytes after the last tensor", data.data() + data.size() - next));
  }
}

}  // namespace

void write_safetensors(const std::filesystem::path& file, std::span<const CheckpointTensor> tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::size_t offset = 0;
  for (const CheckpointTensor& tensor : tensors) {
    const std::size_t bytes = tensor.values.size_in_bytes();
    header[tensor.name] = {{"dtype", format_name(tensor.values.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');

  DurableFile output(file);
  const std::uint64_t length = text.size();
  output.write(&length, kLengthBytes);
  output.write(text);
  for (const CheckpointTensor& tensor : tensors) output.write(tensor.values.data, tensor.values.size_in_bytes());
  output.commit();
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& file) : bytes_(read_file(file)) {
  std::uint64_t length = 0;
  if (bytes_.size() >= kLengthBytes) std::memcpy(&length, bytes_.data(), kLengthBytes);
  if (bytes_.size() < kLengthBytes || length > bytes_.size() - kLengthBytes) {
    throw DataError(fmt::format("{}: expected a header of {} bytes, found {} bytes in all; the file is cut or altered",
                                file.string(), length, bytes_.size()));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + kLengthBytes, length);
  const auto data = std::span<const std::byte>(bytes_).subspan(kLengthBytes + length);
  try {
    const Json header = parse_json(text);
    for (const auto& [name, value] : header.items()) {
      if (name != "__metadata__") entries_.push_back(parse_entry(name, value, data));
    }
    check_order(entries_, data);
  } catch (const nlohmann::json::exception& error) {
    throw DataError(fmt::format("{}: the header is altered: {}", file.string(), error.what()));
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: {}", file.string(), error.message()));
  }
}

const SafetensorsFile::Entry* SafetensorsFile::find(const std::string& name) const {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.name == name; });
  return found == entries_.end() ? nullptr : &*found;
}

}  // namespace farandole::trainer
