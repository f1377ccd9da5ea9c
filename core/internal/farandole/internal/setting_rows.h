// SPDX-License-Identifier: Apache-2.0
// Rows of the table of settings. Each layer has a function that makes the rows of the settings that it reads;
// ops/settings_table.cpp joins them:
//
//   seconds("FARANDOLE_TIMEOUT", field<&Settings::faults, &FaultSettings::timeout>(), 0, kWeek, Scope::kAllRanks, "…")
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "farandole/core/settings.h"

namespace farandole {

using SettingRows = std::vector<SettingInfo>;

/// Ranks for which a process's value holds: rank 0's value for all ranks, or each process's value for its own ranks.
enum class Scope { kAllRanks, kOwn };

namespace setting {

inline constexpr double kKiB = 1024.0;
inline constexpr double kGiB = kKiB * kKiB * kKiB;
inline constexpr double kWeek = 7 * 24 * 3600.0;

/// Access to the field `settings.*kGroup.*kMember`.
template <auto kGroup, auto kMember>
constexpr auto field() {
  using T = std::remove_cvref_t<decltype(std::declval<Settings&>().*kGroup.*kMember)>;
  return SettingField<T>{[](const Settings& settings) -> const T& { return settings.*kGroup.*kMember; },
                         [](Settings& settings) -> T& { return settings.*kGroup.*kMember; }};
}

inline SettingInfo choice(std::string_view variable, SettingField<std::string> field,
                          std::vector<std::string_view> choices, Scope scope, std::string_view meaning) {
  return {variable, field, "", 0, 0, std::move(choices), scope == Scope::kAllRanks, meaning};
}
inline SettingInfo text(std::string_view variable, SettingField<std::string> field, Scope scope,
                        std::string_view meaning) {
  return choice(variable, field, {}, scope, meaning);
}
/// A text that each process sets for itself, and that no message shows.
inline SettingInfo secret(std::string_view variable, SettingField<std::string> field, std::string_view meaning) {
  SettingInfo info = text(variable, field, Scope::kOwn, meaning);
  info.secret = true;
  return info;
}
inline SettingInfo flag(std::string_view variable, SettingField<bool> field, Scope scope, std::string_view meaning) {
  return {variable, field, "", 0, 0, {}, scope == Scope::kAllRanks, meaning};
}
inline SettingInfo number(std::string_view variable, SettingField<std::int64_t> field, double minimum, double maximum,
                          Scope scope, std::string_view meaning) {
  return {variable, field, "", minimum, maximum, {}, scope == Scope::kAllRanks, meaning};
}
inline SettingInfo bytes(std::string_view variable, SettingField<std::int64_t> field, double minimum, double maximum,
                         Scope scope, std::string_view meaning) {
  return {variable, field, "bytes", minimum, maximum, {}, scope == Scope::kAllRanks, meaning};
}
inline SettingInfo seconds(std::string_view variable, SettingField<Seconds> field, double minimum, double maximum,
                           Scope scope, std::string_view meaning) {
  return {variable, field, "seconds", minimum, maximum, {}, scope == Scope::kAllRanks, meaning};
}

}  // namespace setting

/// Rows of the settings of core: faults, launch, network, devices, process, and the memory of windows.
SettingRows core_settings();

}  // namespace farandole
