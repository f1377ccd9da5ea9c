// SPDX-License-Identifier: Apache-2.0
// Logging: one line per event on standard error, with time, level and rank.
#pragma once

#include <string_view>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

/// Sets the minimum level, and the name of this process in each line: "rank 3 node7" once a World has joined, before
/// that "pid 4711". Thread-safe.
void configure_log(LogLevel level, std::string_view process_name);
/// @throws InvalidArgument  `text` is not the name of a level
LogLevel parse_log_level(std::string_view text);
/// Writes a line if `level` is at least the minimum level. Thread-safe.
void log(LogLevel level, std::string_view message);

}  // namespace FARANDOLE_API
