// What the command lines of the programs have in common.
#pragma once

#include <boost/program_options.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace farandole::tools {

/// Parses without guessing: an option that is cut short would change its meaning when another one is added.
/// @throws InvalidArgument  names the option or the word that is wrong, and the nearest option
boost::program_options::variables_map parse_options(const std::vector<std::string>& arguments,
                                                    const boost::program_options::options_description& known,
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
