// SPDX-License-Identifier: Apache-2.0
#include "program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <sstream>

#include "farandole/collectives/algorithms.h"
#include "farandole/core/version.h"

namespace farandole::tools {
namespace {

namespace po = boost::program_options;

std::string upper_first(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

/// Wraps the text into a paragraph as wide as the list of options, and puts an empty line before it.
std::string wrapped(const std::string& text) {
  std::istringstream stream(text);
  std::string lines;
  std::size_t width = kHelpWidth;
  for (std::string word; stream >> word;) {
    const bool fits = width + 1 + word.size() < kHelpWidth;
    lines += fmt::format("{}{}", fits ? " " : lines.empty() ? "\n" : "\n  ", word);
    width = (fits ? width + 1 : 2) + word.size();
  }
  return lines + "\n";
}

/// "COLLECTIVE" for "COLLECTIVE,..." and for "COLLECTIVE BYTES".
std::string first_name(std::string_view value) {
  return std::string(value.substr(0, value.find_first_of(" ,")));
}

/// Explains the values that occur in `options` or as the operand: lists the possible words of each name.
std::string values_text(const Program& program, const OptionTable& options, std::string_view operand) {
  std::string text;
  for (const ValueWords& value : program.values) {
    bool occurs = operand == value.name;
    for (const OptionGroup& group : options) {
      for (const auto& option : group.options.options()) {
        occurs = occurs || first_name(facts_of(*option).value) == value.name;
      }
    }
    if (occurs) text += wrapped(fmt::format("{}: {}", value.name, fmt::join(value.words, ", ")));
  }
  return text;
}

}  // namespace

OptionFacts facts_of(const po::option_description& option) {
  OptionFacts facts;
  facts.long_name = fmt::format("--{}", option.long_name());
  const std::string shortest = option.canonical_display_name(po::command_line_style::allow_dash_for_short);
  if (shortest.size() == 2 && shortest[0] == '-') facts.short_name = shortest;
  facts.meaning = option.description();
  // Boost has no function that returns a value's name, but it prints the name: "N (=1)", "[=text|markdown(=text)]".
  std::string text = option.format_parameter();
  constexpr std::string_view kDefault = " (=", kOptional = "[=";
  if (const auto at = text.rfind(kDefault); at != std::string::npos) {
    facts.default_text = text.substr(at + kDefault.size(), text.size() - at - kDefault.size() - 1);
    text.resize(at);
  }
  if (text.starts_with(kOptional)) {
    facts.value_is_optional = true;
    text = text.substr(kOptional.size(), text.rfind("(=") - kOptional.size());
  }
  facts.value = text;
  return facts;
}

std::vector<std::string> words_of(const Program& program, std::string_view value) {
  const std::string first = first_name(value);
  const auto named = std::find_if(program.values.begin(), program.values.end(),
                                  [&](const ValueWords& candidate) { return candidate.name == first; });
  if (named != program.values.end()) return named->words;
  std::vector<std::string> words;
  const bool is_literal = !first.empty() && first[0] >= 'a' && first[0] <= 'z';
  std::istringstream stream(is_literal ? first : "");
  for (std::string word; std::getline(stream, word, '|');) words.push_back(word);
  return words;
}

std::vector<std::string> usage_of(const Program& program, const Command* command) {
  if (command != nullptr) {
    const std::string operand = command->operand.empty() ? "" : command->operand + " ";
    return {fmt::format("{} {} {}[OPTION]...", program.name, command->name, operand)};
  }
  std::vector<std::string> usage;
  for (const Command& each : program.commands) usage.push_back(usage_of(program, &each).front());
  if (program.commands.empty()) usage.push_back(program.name + " [OPTION]...");
  if (program.is_part_of_job) usage.push_back(fmt::format("farandole-run -np N {}", usage.front()));
  return usage;
}

std::string help_text(const Program& program, const Command* command) {
  std::ostringstream text;
  const std::vector<std::string> usage = usage_of(program, command);
  text << fmt::format("Usage: {}\n", fmt::join(usage, "\n  or:  "));
  text << upper_first(command != nullptr ? command->purpose : program.purpose) << ".\n";
  const OptionTable& options = command != nullptr ? command->options : program.options;
  for (const OptionGroup& group : options) text << '\n' << group.options;
  text << values_text(program, options, command != nullptr ? command->operand : "");
  if (command != nullptr) return text.str();
  if (!program.commands.empty()) {
    text << "\nCommands, each with a --help of its own:\n";
    for (const Command& each : program.commands) text << fmt::format("  {:<8} {}\n", each.name, each.purpose);
  }
  if (!program.examples.empty()) text << "\nExamples:\n";
  for (const Example& example : program.examples) text << "  " << example.command << '\n';
  text << wrapped(fmt::format("Exit status: 0 done, 1 {}, 2 {}{}.", program.when_1, program.when_2,
                              program.ends_on_signals ? ", 130 Ctrl-C, 143 SIGTERM, 75 SIGUSR1" : ""));
  if (program.is_part_of_job) {
    text << wrapped("Settings of the library are FARANDOLE_* variables: farandole-info --config lists them.");
  }
  return text.str();
}

std::string version_text(const Program& program) {
  return fmt::format("{} (Farandole) {}\n", program.name, version());
}

bool answer(const po::variables_map& given, const Program& program, const Command* command) {
  std::string text;
  if (given.contains("help")) {
    text = help_text(program, command);
  } else if (given.contains("version")) {
    text = version_text(program);
  } else if (given.contains(kManualPageSwitch)) {
    text = manual_page(program);
  } else {
    return false;
  }
  std::cout << text;
  check_standard_output();
  return true;
}

std::vector<std::string> collective_names() {
  std::vector<std::string> names;
  for (int i = 0; i < kCollectiveCount; ++i) names.emplace_back(name(static_cast<Collective>(i)));
  return names;
}

namespace {
void add_once(std::vector<std::string>& names, std::string_view name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
}
}  // namespace

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Algorithm& algorithm : algorithms()) add_once(names, algorithm.name);
  return names;
}

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names = schedule_names();
  for (int i = 0; i < kCollectiveCount; ++i) {
    for (const std::string_view name : farandole::algorithm_names(static_cast<Collective>(i))) add_once(names, name);
  }
  return names;
}

}  // namespace farandole::tools
