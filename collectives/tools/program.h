// SPDX-License-Identifier: Apache-2.0
// What a program says about itself: --help, --version, its manual page and its completion are made from the one table.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "command_line.h"

namespace farandole::tools {

/// The words that a value called `name` may be.
struct ValueWords {
  std::string name;
  std::vector<std::string> words;
};

struct Example {
  std::string command;
  std::string meaning;
};

/// `farandole-schedule show`: a command with options of its own.
struct Command {
  std::string name;
  std::string operand;  ///< the word that it takes besides options, called as values are; empty: none
  std::string purpose;
  OptionTable options;
};

struct Program {
  std::string name;
  std::string purpose;                   ///< "measure collectives and check their results"
  std::vector<std::string> description;  ///< paragraphs of the manual page
  OptionTable options;
  std::deque<Command> commands;
  std::vector<ValueWords> values;
  std::vector<Example> examples;
  std::string when_1, when_2 = "wrong options";  ///< what these exit statuses mean
  bool is_part_of_job = true;                    ///< runs under mpirun, and reads the settings
  std::vector<std::string> see_also;
};

/// @param command  the one whose help is asked for; null: the program's
std::string help_text(const Program& program, const Command* command);
/// As GNU's programs print it: the last word of the line is the version.
std::string version_text(const Program& program);
/// For man(1). The same for the same program: no date, and nothing of the machine.
std::string manual_page(const Program& program);
/// For bash 4 or newer; needs nothing else.
std::string bash_completion(const Program& program);

/// Prints what --help and --version ask for. False if neither was given: then the program has to do its work.
/// @throws DataError  standard output takes no more
bool answer(const boost::program_options::variables_map& given, const Program& program,
            const Command* command = nullptr);

/// One option, as its table has it.
struct OptionFacts {
  std::string long_name, short_name;  ///< "--size" and "-n", or empty
  std::string value;                  ///< what its value is called; empty: it takes none
  bool value_is_optional = false;
  std::string default_text;  ///< empty: none
  std::string meaning;
};
OptionFacts facts_of(const boost::program_options::option_description& option);
/// Whether it is a list with commas, "WORD,...".
bool is_list(std::string_view value);
/// The words that a value of this name may be; none if it may be anything.
std::vector<std::string> words_of(const Program& program, std::string_view value);
/// "farandole-schedule show ALGORITHM [OPTION]...": the ways to call it.
std::vector<std::string> usage_of(const Program& program, const Command* command);

// Names of the library's tables, as words of values.
std::vector<std::string> collective_names();
/// Those that are schedules.
std::vector<std::string> schedule_names();
std::vector<std::string> algorithm_names();

}  // namespace farandole::tools
