// SPDX-License-Identifier: Apache-2.0
#include "byte_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "checksum.h"
#include "farandole/core/error.h"

namespace farandole::trainer {
namespace {

constexpr std::size_t kValuesOfAByte = 256;

}  // namespace

ByteValues::ByteValues(const std::vector<Normalization>& normalization, const Shape& shape) {
  const std::int64_t channels = shape.empty() ? 1 : shape.back();
  if (normalization.size() > 1 && static_cast<std::int64_t>(normalization.size()) != channels) {
    throw InvalidArgument(
        fmt::format("{} normalizations, but samples of shape {} have {} channels; give none, one for all channels, or "
                    "one for each",
                    normalization.size(), describe(shape), channels));
  }
  for (const auto& [mean, deviation] : normalization.empty() ? std::vector<Normalization>(1) : normalization) {
    if (!std::isfinite(mean) || !std::isfinite(deviation) || deviation == 0) {
      throw InvalidArgument(
          fmt::format("a normalization with mean {} and deviation {}; both must be finite, and the deviation not 0",
                      mean, deviation));
    }
    for (std::size_t byte = 0; byte < kValuesOfAByte; ++byte) {
      values_.push_back((static_cast<double>(byte) / 255 - mean) / deviation);
    }
  }
}

template <class Scalar>
void ByteValues::convert(std::span<const std::uint8_t> bytes, Scalar* output) const {
  if (values_.size() == kValuesOfAByte) {
    std::transform(bytes.begin(), bytes.end(), output,
                   [&](std::uint8_t byte) { return static_cast<Scalar>(values_[byte]); });
    return;
  }
  std::size_t channel = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    output[i] = static_cast<Scalar>(values_[channel + bytes[i]]);
    channel += kValuesOfAByte;
    if (channel == values_.size()) channel = 0;
  }
}
template void ByteValues::convert(std::span<const std::uint8_t>, float*) const;
template void ByteValues::convert(std::span<const std::uint8_t>, double*) const;

std::uint32_t ByteValues::checksum(std::uint32_t before) const {
  return trainer::checksum(std::as_bytes(std::span(values_)), before);
}

void check_class_names(const std::vector<std::string>& names, std::int32_t classes) {
  if (names.empty()) return;
  if (static_cast<std::int64_t>(names.size()) != classes) {
    throw InvalidArgument(fmt::format("{} names of classes, but classes is {}", names.size(), classes));
  }
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (!seen.insert(name).second) throw InvalidArgument(fmt::format("two classes have the name '{}'", name));
  }
}

}  // namespace farandole::trainer
