// SPDX-License-Identifier: Apache-2.0
#include "farandole/core/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/choice.h"
#include "farandole/internal/device_choice.h"

namespace farandole {
namespace {

constexpr std::string_view kPrefix = "FARANDOLE_";

template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

struct Suffix {
  std::string_view text;
  double factor;
};
constexpr std::array<Suffix, 6> kSecondSuffixes{
    {{"", 1.0}, {"s", 1.0}, {"ms", 1e-3}, {"us", 1e-6}, {"min", 60.0}, {"h", 3600.0}}};

std::string lower_case(std::string_view text) {
  std::string result(text);
  for (char& character : result) {
    if (character >= 'A' && character <= 'Z') character = static_cast<char>(character - 'A' + 'a');
  }
  return result;
}

// Parses the number at the start of `text`, and returns it with the rest of the text. Accepts no sign, infinity or NaN.
template <class Number>
std::optional<std::pair<Number, std::string_view>> leading_number(std::string_view text) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  return std::pair{number, text.substr(static_cast<std::size_t>(end - text.data()))};
}

// Returns the power of 1024 of a unit in lower case ("mib": 2); nothing if the unit is unknown.
std::optional<int> power_of_1024(std::string_view unit) {
  if (unit.empty() || unit == "b") return 0;
  const std::size_t power = std::string_view("kmgt").find(unit[0]);
  if (power == std::string_view::npos) return std::nullopt;
  const std::string_view rest = unit.substr(1);
  if (!rest.empty() && rest != "b" && rest != "i" && rest != "ib") return std::nullopt;
  return static_cast<int>(power) + 1;
}

std::optional<std::int64_t> read_bytes(std::string_view text) {
  const auto number = leading_number<std::int64_t>(text);
  if (!number) return std::nullopt;
  const std::optional<int> power = power_of_1024(lower_case(number->second));
  if (!power) return std::nullopt;
  const int shift = 10 * *power;
  if (number->first > (std::numeric_limits<std::int64_t>::max() >> shift)) return std::nullopt;
  return number->first << shift;
}

std::optional<Seconds> read_seconds(std::string_view text) {
  const auto number = leading_number<double>(text);
  if (!number) return std::nullopt;
  for (const Suffix& suffix : kSecondSuffixes) {
    if (suffix.text == number->second) return Seconds(number->first * suffix.factor);
  }
  return std::nullopt;
}

std::optional<std::int64_t> read_integer(std::string_view text) {
  const bool is_negative = !text.empty() && text[0] == '-';
  const auto number = leading_number<std::int64_t>(is_negative ? text.substr(1) : text);
  if (!number || !number->second.empty()) return std::nullopt;
  return is_negative ? -number->first : number->first;
}

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits{"", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{}{}", bytes, kUnits[unit]);
}

bool is_bytes(const SettingInfo& info) {
  return info.unit == "bytes";
}

[[noreturn]] void throw_wrong_value(const SettingInfo& info, std::string_view text) {
  throw InvalidArgument(fmt::format("{} is '{}'{}; it must be {}.", info.variable, text, suggestion(text, info.choices),
                                    expected_text(info)));
}

// Sets the field of `info` from a text. @throws InvalidArgument  the text is no valid value
void assign(Settings& settings, const SettingInfo& info, std::string_view text) {
  const auto in_range = [&](double value) { return value >= info.minimum && value <= info.maximum; };
  std::visit(Overloaded{[&](const SettingField<std::string>& field) {
                          const auto& choices = info.choices;
                          const bool known = std::find(choices.begin(), choices.end(), text) != choices.end();
                          // A text without choices may be empty only if an empty text means "not set".
                          const bool allowed = choices.empty() ? !text.empty() || field.get({}).empty() : known;
                          if (!allowed) throw_wrong_value(info, text);
                          field.get_mutable(settings) = std::string(text);
                        },
                        [&](const SettingField<std::int64_t>& field) {
                          const auto value = is_bytes(info) ? read_bytes(text) : read_integer(text);
                          if (!value || !in_range(static_cast<double>(*value))) throw_wrong_value(info, text);
                          field.get_mutable(settings) = *value;
                        },
                        [&](const SettingField<bool>& field) {
                          if (text != "on" && text != "off") throw_wrong_value(info, text);
                          field.get_mutable(settings) = text == "on";
                        },
                        [&](const SettingField<Seconds>& field) {
                          const auto value = read_seconds(text);
                          if (!value || !in_range(value->count())) throw_wrong_value(info, text);
                          field.get_mutable(settings) = *value;
                        }},
             info.field);
}

const SettingInfo* find_setting(std::string_view variable) {
  for (const SettingInfo& info : settings_table()) {
    if (info.variable == variable) return &info;
  }
  return nullptr;
}

/// True for variables that Kubernetes sets in every pod for a Service named farandole or farandole-something:
/// FARANDOLE_SERVICE_HOST=10.0.0.7, FARANDOLE_PORT=tcp://10.0.0.7:80. Both name and value must have the form, so that a
/// misspelt setting is still an error.
bool is_service_link(std::string_view variable) {
  constexpr std::size_t kMaxBytes = 512;
  if (variable.size() > kMaxBytes) return false;
  static const std::regex form(
      "FARANDOLE(_[A-Z0-9_]+)?_(SERVICE_HOST=[0-9a-fA-F.:]+|SERVICE_PORT(_[A-Z0-9_]+)?=[0-9]+|PORT(_[0-9]+_(TCP|UDP|"
      "SCTP))?=(tcp|udp|sctp)://"
      "[0-9a-fA-F.:\\[\\]]+|PORT_[0-9]+_(TCP|UDP|SCTP)_(PROTO=(tcp|udp|sctp)|PORT=[0-9]+|ADDR=[0-9a-fA-F.:]+))");
  return std::regex_match(variable.begin(), variable.end(), form);
}

[[noreturn]] void throw_unknown_variable(std::string_view variable) {
  // Compares without the common prefix, which would make all names look close.
  std::vector<std::string_view> names;
  for (const SettingInfo& info : settings_table()) names.push_back(info.variable.substr(kPrefix.size()));
  const auto meant = nearest(variable.substr(kPrefix.size()), names);
  throw InvalidArgument(
      fmt::format("the environment variable {} is no setting of Farandole{}; 'farandole-info --config' lists all.",
                  variable, meant ? fmt::format(" (did you mean {}{}?)", kPrefix, *meant) : ""));
}

void check_rank_and_size(const Settings& settings) {
  if (settings.launch.size == 0) throw InvalidArgument("FARANDOLE_SIZE is 0; a job has at least one rank.");
  if (settings.launch.rank >= 0 && settings.launch.size >= 0 && settings.launch.rank >= settings.launch.size) {
    throw InvalidArgument(fmt::format("FARANDOLE_RANK is {} but FARANDOLE_SIZE is {}; ranks are numbered from 0 to {}.",
                                      settings.launch.rank, settings.launch.size, settings.launch.size - 1));
  }
}

// Optimal string alignment: edits are insertion, deletion, replacement and the exchange of two neighbours.
// Source: Damerau, CACM 7(3), 1964.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> distance(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) distance[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) distance[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = distance[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      distance[i][j] = std::min({distance[i - 1][j] + 1, distance[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
      }
    }
  }
  return distance[a.size()][b.size()];
}

}  // namespace

Settings Settings::from_environment() {
  std::vector<std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::string_view(*entry).substr(0, kPrefix.size()) == kPrefix) variables.emplace_back(*entry);
  }
  return parse(variables);
}

Settings Settings::parse(std::span<const std::string> variables) {
  Settings settings;
  for (const std::string_view variable : variables) {
    const std::size_t equals = variable.find('=');
    if (equals == std::string_view::npos) {
      throw InvalidArgument(fmt::format("'{}' is no setting; it must have the form NAME=value.", variable));
    }
    const std::string_view variable_name = variable.substr(0, equals);
    if (variable_name.substr(0, kPrefix.size()) != kPrefix) continue;
    const SettingInfo* info = find_setting(variable_name);
    if (info == nullptr && is_service_link(variable)) continue;
    if (info == nullptr) throw_unknown_variable(variable_name);
    assign(settings, *info, variable.substr(equals + 1));
  }
  check_rank_and_size(settings);
  check_device_setting(settings.devices.ordinals);
  return settings;
}

std::string value_text(const Settings& settings, const SettingInfo& info) {
  const std::string text = std::visit(
      Overloaded{[&](const SettingField<std::string>& field) { return field.get(settings); },
                 [&](const SettingField<std::int64_t>& field) {
                   const std::int64_t value = field.get(settings);
                   return is_bytes(info) ? bytes_text(value) : std::to_string(value);
                 },
                 [&](const SettingField<bool>& field) { return std::string(field.get(settings) ? "on" : "off"); },
                 [&](const SettingField<Seconds>& field) { return fmt::format("{}", field.get(settings).count()); }},
      info.field);
  return info.secret && !text.empty() ? "(secret)" : text;
}

std::string expected_text(const SettingInfo& info) {
  if (!info.choices.empty()) return fmt::format("one of {}", fmt::join(info.choices, ", "));
  return std::visit(Overloaded{[](const SettingField<std::string>&) { return std::string("a text"); },
                               [&](const SettingField<std::int64_t>&) {
                                 const auto minimum = static_cast<std::int64_t>(info.minimum);
                                 const auto maximum = static_cast<std::int64_t>(info.maximum);
                                 if (!is_bytes(info)) return fmt::format("a number from {} to {}", minimum, maximum);
                                 return fmt::format("bytes from {} to {}", bytes_text(minimum), bytes_text(maximum));
                               },
                               [](const SettingField<bool>&) { return std::string("on or off"); },
                               [&](const SettingField<Seconds>&) {
                                 return fmt::format("seconds from {} to {}", info.minimum, info.maximum);
                               }},
                    info.field);
}

std::string encode_agreed(const Settings& settings) {
  nlohmann::ordered_json values = nlohmann::ordered_json::object();
  for (const SettingInfo& info : settings_table()) {
    if (info.agreed) values[std::string(info.variable)] = value_text(settings, info);
  }
  // File names may be invalid UTF-8: such bytes are replaced.
  return values.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::vector<std::string> adopt_agreed(Settings& settings, std::string_view encoded) {
  const auto values = nlohmann::json::parse(encoded, nullptr, /*allow_exceptions=*/false);
  std::vector<std::string> differences;
  for (const SettingInfo& info : settings_table()) {
    if (!info.agreed) continue;
    const std::string key(info.variable);
    if (!values.is_object() || !values.contains(key) || !values[key].is_string()) {
      throw Mismatch(fmt::format(
          "rank 0 sent its settings without {}; all ranks must run the same version of Farandole.", info.variable));
    }
    const std::string theirs = values[key].get<std::string>();
    const std::string ours = value_text(settings, info);
    if (theirs == ours) continue;
    assign(settings, info, theirs);
    differences.push_back(fmt::format("{} is {} here and {} on rank 0; rank 0's value is used", key, ours, theirs));
  }
  return differences;
}

std::optional<std::string_view> nearest(std::string_view word, std::span<const std::string_view> candidates) {
  std::optional<std::string_view> best;
  // A candidate is close if at most a third of the letters are wrong.
  std::size_t closest = (word.size() + 2) / 3 + 1;
  for (const std::string_view candidate : candidates) {
    // The distance is at least the difference of the lengths. Skipping long words bounds the cost for words from files.
    const std::size_t longer = std::max(word.size(), candidate.size()),
                      shorter = std::min(word.size(), candidate.size());
    if (longer - shorter >= closest) continue;
    const std::size_t distance = edit_distance(lower_case(word), lower_case(candidate));
    if (distance >= closest) continue;
    closest = distance;
    best = candidate;
  }
  return best;
}

std::string suggestion(std::string_view word, std::span<const std::string_view> candidates) {
  const std::optional<std::string_view> meant = nearest(word, candidates);
  return meant ? fmt::format(" (did you mean '{}'?)", *meant) : "";
}

void throw_no_such(std::string_view word, std::string_view what, std::span<const std::string_view> candidates) {
  throw InvalidArgument(fmt::format("'{}' is no {}{}; it must be one of {}.", word, what, suggestion(word, candidates),
                                    fmt::join(candidates, ", ")));
}

std::int64_t parse_bytes(std::string_view text) {
  const std::optional<std::int64_t> bytes = read_bytes(text);
  if (bytes) return *bytes;
  throw InvalidArgument(fmt::format(
      "'{}' is no number of bytes; it must be a whole number, with K, M, G or T for powers of 1024: 1000, 64K, 4MiB.",
      text));
}

}  // namespace farandole
