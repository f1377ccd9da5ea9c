// SPDX-License-Identifier: Apache-2.0
#include "command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <optional>
#include <typeinfo>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/core/settings.h"

namespace farandole::tools {
namespace {

namespace po = boost::program_options;

/// Pseudo-option that takes the words which belong to no option. Users cannot type its name, which contains a blank.
constexpr const char* kStrayWords = "stray words";

template <class Number>
std::optional<Number> parse_all_as(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Returns " Did you mean '--size'?" for a word that resembles an option, else an empty text.
std::string meant_option(const std::string& word, const OptionTable& known, const std::vector<ForeignName>& foreign) {
  const auto translated = std::find_if(foreign.begin(), foreign.end(),
                                       [&](const ForeignName& candidate) { return candidate.other == word; });
  if (translated != foreign.end()) return did_you_mean(translated->ours, {translated->ours});
  std::vector<std::string> names;
  for (const OptionGroup& group : known) {
    for (const auto& option : group.options.options()) names.push_back(option->long_name());
  }
  // Without the dashes, which all options have in common.
  const std::string_view name = std::string_view(word).substr(std::min(word.find_first_not_of('-'), word.size()));
  const auto meant = nearest(name, std::vector<std::string_view>(names.begin(), names.end()));
  return meant ? fmt::format(" Did you mean '--{}'?", *meant) : std::string();
}

/// Returns ", expected a whole number" or the like for an option's value, or an empty text. @param option  "--size"
std::string expected_value(const po::options_description& all, const std::string& option) {
  const std::size_t dashes = std::min(option.find_first_not_of('-'), option.size());
  const po::option_description* const found = all.find_nothrow(option.substr(dashes), /*approx=*/false);
  const auto* const value =
      found != nullptr ? dynamic_cast<const po::typed_value_base*>(found->semantic().get()) : nullptr;
  if (value == nullptr) return "";
  if (value->value_type() == typeid(double)) return ", expected a number such as 0.5 or 1e-3";
  const bool is_whole = value->value_type() == typeid(std::int64_t) || value->value_type() == typeid(int);
  return is_whole ? ", expected a whole number such as 8" : "";
}

}  // namespace

OptionGroup::OptionGroup(std::string heading) : title(std::move(heading)), options(title, kHelpWidth) {}

void add_common_options(OptionGroup& group) {
  group.options.add_options()                  //
      ("help,h", "print this text and leave")  //
      ("version", "print the version and leave");
}

po::variables_map parse_options(const std::vector<std::string>& arguments, const OptionTable& known,
                                po::positional_options_description words, const std::vector<ForeignName>& foreign) {
  po::options_description all;
  for (const OptionGroup& group : known) all.add(group.options);
  all.add_options()            //
      (kManualPageSwitch, "")  //
      (kStrayWords, po::value<std::vector<std::string>>());
  words.add(kStrayWords, -1);
  po::variables_map options;
  try {
    const int exact = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    po::store(po::command_line_parser(arguments).options(all).positional(words).style(exact).run(), options);
  } catch (const po::unknown_option& error) {
    const std::string word = error.get_option_name();
    throw InvalidArgument(
        fmt::format("There is no option '{}'; --help lists all.{}", word, meant_option(word, known, foreign)));
  } catch (const po::validation_error& error) {
    throw InvalidArgument(
        fmt::format("{}{}; --help lists the options.", error.what(), expected_value(all, error.get_option_name())));
  } catch (const po::error& error) {
    throw InvalidArgument(fmt::format("{}; --help lists the options.", error.what()));
  }
  if (options.count(kStrayWords) > 0) {
    throw InvalidArgument(fmt::format("The word '{}' belongs to no option; --help lists the options.",
                                      options[kStrayWords].as<std::vector<std::string>>().front()));
  }
  for (const auto& [name, value] : options) {
    const auto* const text = boost::any_cast<std::string>(&value.value());
    const bool takes_value = all.find(name, /*approx=*/false).semantic()->max_tokens() > 0;
    if (takes_value && text != nullptr && text->empty() && !value.defaulted()) {
      throw InvalidArgument(fmt::format("--{} is empty; it needs a value.", name));
    }
  }
  return options;
}

po::typed_value<std::string>* word(const char* value_name, const char* default_value) {
  auto* const value = po::value<std::string>()->value_name(value_name);
  return default_value != nullptr ? value->default_value(default_value) : value;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates) {
  const auto meant = nearest(word, candidates);
  return meant ? fmt::format(" Did you mean '{}'?", *meant) : std::string();
}

int parse_number(std::string_view text, int low, int high, std::string_view option) {
  const auto number = parse_all_as<int>(text);
  if (!number || *number < low || *number > high) {
    throw InvalidArgument(fmt::format("{} has '{}'; it takes numbers from {} to {}.", option, text, low, high));
  }
  return *number;
}

double parse_decimal(std::string_view text, std::string_view option) {
  const auto number = parse_all_as<double>(text);
  if (!number || !std::isfinite(*number) || *number < 0) {
    throw InvalidArgument(fmt::format("{} has '{}'; it takes numbers from 0 on, such as 2.5.", option, text));
  }
  return *number;
}

void check_standard_output() {
  std::cout.flush();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout) {
    throw DataError("What was printed could not be written to standard output; is the disk full?");
  }
}

}  // namespace farandole::tools
