// SPDX-License-Identifier: Apache-2.0
// The completion of a program's command line, for bash.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "program.h"

namespace farandole::tools {
namespace {

std::string function_name(const Program& program) {
  std::string name = program.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return fmt::format("_{}", name);
}

std::vector<std::string> option_names(const OptionTable& table) {
  std::vector<std::string> names;
  for (const OptionGroup& group : table) {
    for (const auto& option : group.options.options()) names.push_back(facts_of(*option).long_name);
  }
  return names;
}

/// Assignment to `candidates`, the arguments of compgen, for a value of this name.
std::string candidates_of(const Program& program, std::string_view value) {
  if (value == "FILE") return "candidates=(-f)";
  if (value == "DIR") return "candidates=(-d)";
  const std::vector<std::string> words = words_of(program, value);
  if (words.empty()) return "candidates=()";
  const std::string list = is_list(value) ? " prefix=${current%\"${current##*,}\"}" : "";
  return fmt::format("candidates=(-W '{}'){}", fmt::join(words, " "), list);
}

/// Shell code that sets the candidates for the current word: the value of the option before the word, or an option, or
/// the operand of the command.
std::string choose_candidates(const Program& program, const OptionTable& table, const std::string& operand,
                              const std::string& margin) {
  std::string text = fmt::format("{}candidates=(-W '{}')\n", margin, fmt::join(option_names(table), " "));
  std::string cases;
  for (const OptionGroup& group : table) {
    for (const auto& option : group.options.options()) {
      const OptionFacts facts = facts_of(*option);
      if (facts.value.empty()) continue;
      const std::string names =
          fmt::format("{}{}{}", facts.long_name, facts.short_name.empty() ? "" : " | ", facts.short_name);
      cases += fmt::format("{}    {}) {} ;;\n", margin, names, candidates_of(program, facts.value));
    }
  }
  if (!operand.empty()) {
    cases += fmt::format("{}    *) ((COMP_CWORD != 2)) || {} ;;\n", margin, candidates_of(program, operand));
  }
  if (cases.empty()) return text;
  return text +
         fmt::format("{0}if [[ $current != -* ]]; then\n{0}  case $previous in\n{1}{0}  esac\n{0}fi\n", margin, cases);
}

/// Shell code that sets the candidates for programs with commands: for the first word the commands, for later words the
/// candidates of the command that the first word names.
std::string choose_by_command(const Program& program) {
  std::vector<std::string> first_words;
  for (const Command& command : program.commands) first_words.push_back(command.name);
  for (const std::string& name : option_names(program.options)) first_words.push_back(name);
  std::string text = "  local command=''\n  ((COMP_CWORD == 1)) || command=${COMP_WORDS[1]}\n  case $command in\n";
  text += fmt::format("    '') candidates=(-W '{}') ;;\n", fmt::join(first_words, " "));
  for (const Command& command : program.commands) {
    text += fmt::format("    {})\n{}      ;;\n", command.name,
                        choose_candidates(program, command.options, command.operand, "      "));
  }
  return text + "  esac\n";
}

}  // namespace

std::string bash_completion(const Program& program) {
  constexpr const char* kBegin =
      R"(  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} prefix='' candidates=()
  # In COMP_WORDS the = of --option=value is a word of its own.
  if [[ $current == = ]]; then
    current=
  elif [[ $previous == = ]]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
)";
  constexpr const char* kEnd = R"(  COMPREPLY=()
  if ((${#candidates[@]} > 0)); then
    mapfile -t COMPREPLY < <(compgen "${candidates[@]}" -P "$prefix" -- "${current#"$prefix"}")
  fi
  # compopt fails outside of a completion, as in tests.
  if [[ ${candidates[0]-} == -[df] ]]; then compopt -o filenames 2>/dev/null || true; fi
)";
  const std::string function = function_name(program);
  return fmt::format("# shellcheck shell=bash\n# Made by {} --{} from the table of its options.\n{}() {{\n",
                     program.name, kCompletionSwitch, function) +
         kBegin +
         (program.commands.empty() ? choose_candidates(program, program.options, "", "  ")
                                   : choose_by_command(program)) +
         kEnd + fmt::format("}}\ncomplete -F {} {}\n", function, program.name);
}

}  // namespace farandole::tools
