// SPDX-License-Identifier: Apache-2.0
// Parsing of command lines, shared by all programs.
#pragma once

#include <boost/program_options.hpp>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace farandole::tools {

inline constexpr unsigned kHelpWidth = 80;  ///< maximum length of a line of --help, in characters

/// Options under one heading of --help.
///
/// The name of an option's value (Boost's `value_name`) tells --help, the manual page and the shell's completion which
/// values the option takes:
/// - "in|out" lists the possible words.
/// - FILE and DIR stand for names of files and directories.
/// - For other upper-case names, `Program::values` lists the possible words.
/// - "WORD,..." is a comma-separated list.
struct OptionGroup {
  explicit OptionGroup(std::string heading);
  std::string title;
  boost::program_options::options_description options;
};
/// All options of a program or command. A deque, because Boost's tables cannot be moved.
using OptionTable = std::deque<OptionGroup>;

/// Adds --help and --version, which all programs and commands have.
void add_common_options(OptionGroup& group);

/// Hidden switch that prints the manual page; the build calls each program with it.
inline constexpr const char* kManualPageSwitch = "man-page";

/// An option's name in other tools, and its name here: {"--lr", "--learning-rate"}.
struct ForeignName {
  std::string_view other, ours;
};

/// Parses a command line. Rejects abbreviated options, because a new option could change their meaning. Does not set
/// variables that are bound to options: call boost::program_options::notify for that.
/// @param words  options that receive the positional arguments, in order
/// @param foreign  names of other tools, which an error message translates
/// @throws InvalidArgument  names the wrong option or word, and the option that was probably meant
boost::program_options::variables_map parse_options(const std::vector<std::string>& arguments, const OptionTable& known,
                                                    boost::program_options::positional_options_description words = {},
                                                    const std::vector<ForeignName>& foreign = {});

/// Describes an option whose value is any text. @param value_name  see OptionGroup   @param default_value  null: none
boost::program_options::typed_value<std::string>* word(const char* value_name, const char* default_value = nullptr);

/// " Did you mean 'show'?" if a candidate resembles `word`, else empty.
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates);

/// @throws InvalidArgument  `text` is not a whole number from `low` to `high`
int parse_number(std::string_view text, int low, int high, std::string_view option);
/// @throws InvalidArgument  `text` is not a finite number, or is negative
double parse_decimal(std::string_view text, std::string_view option);

/// Flushes standard output. @throws DataError  some output could not be written, for example because the disk is full
void check_standard_output();

}  // namespace farandole::tools
