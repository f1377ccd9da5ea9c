// SPDX-License-Identifier: Apache-2.0
// Checked access to JSON of untrusted files.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "farandole/core/error.h"
#include "farandole/internal/json_depth.h"
#include "farandole/trainer/tensor.h"

namespace farandole::trainer {

using Json = nlohmann::ordered_json;

/// Parses JSON. @throws DataError  the nesting is deeper than kMaxJsonDepth, which no valid file exceeds
/// @throws nlohmann::json::exception  the text is no JSON
inline Json parse_json(std::string_view text) {
  if (const int depth = json_depth(text); depth > kMaxJsonDepth) {
    throw DataError(fmt::format("lists and objects lie {} deep in each other", depth));
  }
  return Json::parse(text);
}

/// Returns a count or a position. @throws DataError  the field is no integer from 0 to 2^63 - 1
inline std::int64_t count_from(const Json& field) {
  // nlohmann's conversion would accept other numbers: it converts -1 to a large number, and 1e300 to an arbitrary
  // number.
  if (!field.is_number_unsigned() || field.get<std::uint64_t>() > std::uint64_t{INT64_MAX}) {
    throw DataError(fmt::format("{} is no number of anything",
                                field.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60)));
  }
  return field.get<std::int64_t>();
}

/// Returns a shape of at most 2^47 elements. @throws DataError  the field is no list of counts, or has more elements
inline Shape shape_from(const Json& field) {
  std::int64_t remaining = std::int64_t{1} << 47;
  Shape shape;
  for (const Json& each : field) {
    const std::int64_t extent = count_from(each);
    if (extent > remaining) throw DataError("a shape of more elements than any memory holds");
    if (extent > 0) remaining /= extent;
    shape.push_back(extent);
  }
  return shape;
}

}  // namespace farandole::trainer
