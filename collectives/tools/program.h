// SPDX-License-Identifier: Apache-2.0
// Description of a program: the source of --help, --version and the manual page.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "command_line.h"

namespace farandole::tools {

/// Possible words of option values with this name.
struct ValueWords {
  std::string name;
  std::vector<std::string> words;
};

struct Example {
  std::string command;
  std::string meaning;
};

/// A command with options of its own, such as `farandole-schedule show`.
struct Command {
  std::string name;
  std::string operand;  ///< name of the command's positional argument, see OptionGroup; or empty
  std::string purpose;
  OptionTable options;
};

/// Everything that a program tells users about itself. A program fills this description, parses its command line with
/// it, and lets `answer` print the common texts:
///
///     const Program program = describe_program();
///     const auto options = parse_options({argv + 1, argv + argc}, program.options);
///     if (answer(options, program)) return kExitDone;
struct Program {
  std::string name;
  std::string purpose;                   ///< "measure collectives and check their results"
  std::vector<std::string> description;  ///< paragraphs of the manual page
  OptionTable options;
  std::deque<Command> commands;
  std::vector<ValueWords> values;
  std::vector<ForeignName> foreign_names;  ///< names of these options in other tools
  std::vector<Example> examples;
  std::string when_1 = "an error", when_2 = "wrong options or settings";  ///< meanings of the exit statuses 1 and 2
  /// True: SIGINT, SIGTERM and SIGUSR1 end the program's work, with the statuses 130, 143 and 75.
  bool ends_on_signals = false;
  bool is_part_of_job = true;  ///< the program runs under mpirun and reads the settings
  std::vector<std::string> see_also;
};

/// The text of --help. @param command  null for the help of the program itself
std::string help_text(const Program& program, const Command* command);
/// The text of --version in GNU's format: the last word of the line is the version.
std::string version_text(const Program& program);
/// The page for man(1), in roff. Reproducible: the page has no date, and depends only on the program.
std::string manual_page(const Program& program);

/// Answers --help, --version and the hidden switch of the manual page. Returns false if none of them was given; the
/// program then does its work. @throws DataError  standard output cannot be written
bool answer(const boost::program_options::variables_map& given, const Program& program,
            const Command* command = nullptr);

/// Facts of one option, as texts.
struct OptionFacts {
  std::string long_name, short_name;  ///< "--size" and "-n"; either may be empty
  std::string value;                  ///< name of the value; empty if the option takes none
  bool value_is_optional = false;
  std::string default_text;  ///< empty if the option has no default
  std::string meaning;
};
OptionFacts facts_of(const boost::program_options::option_description& option);
/// Possible words of a value of this name; empty if any value is possible.
std::vector<std::string> words_of(const Program& program, std::string_view value);
/// The forms of the command line, such as "farandole-schedule show ALGORITHM [OPTION]...".
std::vector<std::string> usage_of(const Program& program, const Command* command);

// Possible words of values, from the library's tables.

/// Names of all collectives.
std::vector<std::string> collective_names();
/// Names of all algorithms that are schedules.
std::vector<std::string> schedule_names();
/// Names of all algorithms, schedules or not.
std::vector<std::string> algorithm_names();

}  // namespace farandole::tools
