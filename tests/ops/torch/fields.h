// SPDX-License-Identifier: Apache-2.0
// Reads the fields of a JSON object, each once, and refuses fields that nobody reads.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "farandole/core/error.h"

namespace farandole::trainer::test {

using Json = nlohmann::json;

/// Call `finish` after the last `read`, so that a misspelt option of a case is an error instead of a default.
class Fields {
 public:
  /// @param what  the object's name for messages
  Fields(const Json& object, std::string what) : object_(object), what_(std::move(what)) {}

  /// Returns false, and leaves `value` as it is, if there is no such field.
  template <class Value>
  bool read(const std::string& name, Value& value) {
    known_.insert(name);
    const auto field = object_.find(name);
    if (field == object_.end()) return false;
    field->get_to(value);
    return true;
  }
  /// @throws InvalidArgument  there is no such field
  template <class Value>
  Value get(const std::string& name) {
    Value value{};
    if (!read(name, value)) throw InvalidArgument(fmt::format("{} has no field '{}'", what_, name));
    return value;
  }
  /// @throws InvalidArgument  the object has a field that was not read
  void finish() const {
    for (const auto& field : object_.items()) {
      if (known_.count(field.key()) == 0) {
        throw InvalidArgument(fmt::format("{} has an unknown field '{}'", what_, field.key()));
      }
    }
  }

 private:
  const Json& object_;
  const std::string what_;
  std::set<std::string> known_;
};

}  // namespace farandole::trainer::test
