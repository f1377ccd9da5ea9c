// SPDX-License-Identifier: Apache-2.0
// What the command lines of the programs have in common.
#pragma once

#include <boost/program_options.hpp>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace farandole::tools {

inline constexpr unsigned kHelpWidth = 110;  ///< characters in a line of --help

/// Options under one heading of --help.
///
/// What a value is called says what it is, in --help, in the manual page and to the completion: "in|out" are the words
/// it may be, FILE and DIR are names of files and directories, other upper-case words are explained by
/// `Program::values`; "WORD,..." is a list with commas.
struct OptionGroup {
  explicit OptionGroup(std::string heading);
  std::string title;
  boost::program_options::options_description options;
};
/// A deque, because Boost's tables do not move.
using OptionTable = std::deque<OptionGroup>;

/// --help and --version, which all programs and their commands have.
void add_common_options(OptionGroup& group);

/// Switches that --help does not name: the build makes the manual page and the completion of a program with them.
inline constexpr const char* kManualPageSwitch = "man-page";
inline constexpr const char* kCompletionSwitch = "bash-completion";

/// Parses without guessing: an option that is cut short would change its meaning when another one is added. Variables
/// that the table names are not set before boost::program_options::notify.
/// @throws InvalidArgument  names the option or the word that is wrong, and the nearest option
boost::program_options::variables_map parse_options(const std::vector<std::string>& arguments, const OptionTable& known,
                                                    boost::program_options::positional_options_description words = {});

/// " Did you mean 'show'?", or nothing.
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates);

/// @throws InvalidArgument  `text` is no whole number from `low` to `high`
int parse_number(std::string_view text, int low, int high, std::string_view option);
/// @throws InvalidArgument  `text` is no finite number, or less than 0
double parse_decimal(std::string_view text, std::string_view option);

/// @throws DataError  what was printed did not reach standard output: a full disk, for example
void check_standard_output();

}  // namespace farandole::tools
