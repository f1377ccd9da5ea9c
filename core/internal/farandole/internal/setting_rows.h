// SPDX-License-Identifier: Apache-2.0
// Rows of the table of settings. Each layer has a function that makes its own; ops/settings_table.cpp puts them
// together.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "farandole/core/settings.h"

namespace farandole {

using SettingRows = std::vector<SettingInfo>;

enum class Scope { kAllRanks, kOwn };  ///< whose value holds: rank 0's, or each rank's own

namespace setting {

inline constexpr double kKiB = 1024.0;
inline constexpr double kGiB = kKiB * kKiB * kKiB;
inline constexpr double kWeek = 7 * 24 * 3600.0;

inline SettingInfo choice(std::string_view variable, std::string Settings::*member,
                          std::vector<std::string_view> choices, Scope scope, std::string_view meaning) {
  return {variable, member, "", 0, 0, std::move(choices), scope == Scope::kAllRanks, meaning};
}
inline SettingInfo text(std::string_view variable, std::string Settings::*member, Scope scope,
                        std::string_view meaning) {
  return choice(variable, member, {}, scope, meaning);
}
/// Each process's own, and shown to nobody.
inline SettingInfo secret(std::string_view variable, std::string Settings::*member, std::string_view meaning) {
  SettingInfo info = text(variable, member, Scope::kOwn, meaning);
  info.secret = true;
  return info;
}
inline SettingInfo flag(std::string_view variable, bool Settings::*member, Scope scope, std::string_view meaning) {
  return {variable, member, "", 0, 0, {}, scope == Scope::kAllRanks, meaning};
}
inline SettingInfo number(std::string_view variable, std::int64_t Settings::*member, double minimum, double maximum,
                          Scope scope, std::string_view meaning) {
  return {variable, member, "", minimum, maximum, {}, scope == Scope::kAllRanks, meaning};
}
inline SettingInfo bytes(std::string_view variable, std::int64_t Settings::*member, double minimum, double maximum,
                         Scope scope, std::string_view meaning) {
  return {variable, member, "bytes", minimum, maximum, {}, scope == Scope::kAllRanks, meaning};
}
inline SettingInfo seconds(std::string_view variable, Seconds Settings::*member, double minimum, double maximum,
                           Scope scope, std::string_view meaning) {
  return {variable, member, "seconds", minimum, maximum, {}, scope == Scope::kAllRanks, meaning};
}

}  // namespace setting

/// Of waiting, joining a job, and this process.
SettingRows core_settings();

}  // namespace farandole
