// SPDX-License-Identifier: Apache-2.0
// Values of JSON files that come from elsewhere.
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

/// @throws DataError  it is nested more deeply than any file of ours   @throws nlohmann::json::exception  it is no JSON
inline Json parse_json(std::string_view text) {
  if (const int depth = json_depth(text); depth > kMaxJsonDepth) {
    throw DataError(fmt::format("lists and objects lie {} deep in each other", depth));
  }
  return Json::parse(text);
}

/// A number of things, or a position. @throws DataError  it is none
inline std::int64_t whole(const Json& field) {
  // Others would be converted: -1 to a large number, 1e300 to anything.
  if (!field.is_number_unsigned() || field.get<std::uint64_t>() > std::uint64_t{INT64_MAX}) {
    throw DataError(fmt::format("{} is no number of anything",
                                field.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60)));
  }
  return field.get<std::int64_t>();
}

/// A shape of which the elements can be counted. @throws DataError  it is none
inline Shape shape_from(const Json& field) {
  std::int64_t room = std::int64_t{1} << 47;
  Shape shape;
  for (const Json& each : field) {
    const std::int64_t extent = whole(each);
    if (extent > room) throw DataError("a shape of more elements than any memory holds");
    if (extent > 0) room /= extent;
    shape.push_back(extent);
  }
  return shape;
}

}  // namespace farandole::trainer
