// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/log.h"

#include <spdlog/details/console_globals.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <array>
#include <memory>
#include <mutex>
#include <string>

#include "farandole/internal/choice.h"
#include "farandole/internal/forked_children.h"

namespace farandole {
namespace {

constexpr Words<5> kLevels{"debug", "info", "warning", "error", "off"};

spdlog::level::level_enum to_spdlog(LogLevel level) {
  constexpr std::array kTheirs{spdlog::level::debug, spdlog::level::info, spdlog::level::warn, spdlog::level::err,
                               spdlog::level::off};
  return kTheirs[static_cast<std::size_t>(level)];
}

std::string pattern(std::string_view process_name) {
  std::string text = "%Y-%m-%d %H:%M:%S.%e farandole %l";
  if (!process_name.empty()) text += " [";
  for (const char character : process_name) {
    // Escapes a percent sign in a host name, which spdlog would take for a pattern.
    text += character == '%' ? "%%" : std::string(1, character);
  }
  return text + (process_name.empty() ? ": %v" : "]: %v");
}

/// Mutex of the sink. Forks hold it, so that a forked child finds it free.
std::mutex& sink_mutex() {
  return spdlog::details::console_mutex::mutex();
}

// Never destroyed, so that destructors of static objects can still log.
spdlog::logger& logger() {
  static spdlog::logger* const instance = [] {
    hold_at_forks<sink_mutex>();
    auto made = std::make_unique<spdlog::logger>("farandole", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_level(spdlog::level::warn);
    made->set_pattern(pattern(""));
    return made.release();
  }();
  return *instance;
}

}  // namespace

void configure_log(LogLevel level, std::string_view process_name) {
  logger().set_pattern(pattern(process_name));
  logger().set_level(to_spdlog(level));
}

LogLevel parse_log_level(std::string_view text) {
  return parse_word<LogLevel>(text, "log level", kLevels);
}

void log(LogLevel level, std::string_view message) {
  if (level == LogLevel::kOff) return;
  logger().log(to_spdlog(level), spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace farandole
