// SPDX-License-Identifier: Apache-2.0
// Logging: one line per event on standard error, with time, level and the rank that says it.
#pragma once

#include <string_view>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

/// Sets the level and what identifies this process in each line: its first rank and host, as soon as a World knows
/// them. Thread-safe.
void configure_log(LogLevel level, std::string_view process_name);
LogLevel parse_log_level(std::string_view text);
void log(LogLevel level, std::string_view message);

}  // namespace FARANDOLE_API
