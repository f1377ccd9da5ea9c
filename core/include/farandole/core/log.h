// Logging: one line per event on standard error, with time, level, rank and host.
#pragma once

#include <string_view>

namespace farandole {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

/// Sets the level and what identifies this process in each line. Called when a World is made; thread-safe.
void configure_log(LogLevel level, int rank, std::string_view host);
LogLevel parse_log_level(std::string_view text);
void log(LogLevel level, std::string_view message);

}  // namespace farandole
