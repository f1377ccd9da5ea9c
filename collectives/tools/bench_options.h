// SPDX-License-Identifier: Apache-2.0
// farandole-bench: its command line.
#pragma once

#include <boost/program_options.hpp>

#include "bench.h"
#include "program.h"

namespace farandole::bench {

tools::Program describe_program();
/// @throws InvalidArgument, Unsupported  names the option, and what it takes
Options options_from(const boost::program_options::variables_map& values);

}  // namespace farandole::bench
