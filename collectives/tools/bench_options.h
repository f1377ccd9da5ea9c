// SPDX-License-Identifier: Apache-2.0
// farandole-bench: the command line.
#pragma once

#include <boost/program_options.hpp>

#include "bench.h"
#include "program.h"

namespace farandole::bench {

tools::Program describe_program();
/// @throws InvalidArgument, Unsupported  names the option and its valid values
Options options_from(const boost::program_options::variables_map& values);

}  // namespace farandole::bench
