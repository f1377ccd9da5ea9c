// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/log.h"

#include <gtest/gtest.h>

#include <string>

#include "farandole/core/error.h"

namespace farandole {
namespace {

std::string written_by(LogLevel level, std::string_view message) {
  testing::internal::CaptureStderr();
  log(level, message);
  return testing::internal::GetCapturedStderr();
}

// First in this file, as nothing can undo configure_log.
TEST(Log, StartsAtWarning) {
  EXPECT_EQ(written_by(LogLevel::kInfo, "hidden"), "");
  const std::string line = written_by(LogLevel::kWarning, "shown");
  EXPECT_NE(line.find("warning"), std::string::npos) << line;
  EXPECT_NE(line.find("shown\n"), std::string::npos) << line;
}

TEST(Log, LinesNameLevelRankAndHost) {
  configure_log(LogLevel::kDebug, "rank 3 node%v7");
  const std::string line = written_by(LogLevel::kDebug, "100 % {} of it");
  EXPECT_NE(line.find("debug [rank 3 node%v7]: 100 % {} of it\n"), std::string::npos) << line;
}

TEST(Log, LevelsHideLessSevereMessages) {
  configure_log(LogLevel::kError, "rank 0 host");
  EXPECT_EQ(written_by(LogLevel::kWarning, "hidden"), "");
  EXPECT_NE(written_by(LogLevel::kError, "shown"), "");
  configure_log(LogLevel::kOff, "rank 0 host");
  EXPECT_EQ(written_by(LogLevel::kError, "hidden"), "");
  EXPECT_EQ(written_by(LogLevel::kOff, "hidden"), "");
}

TEST(Log, LevelNamesAreParsed) {
  EXPECT_EQ(parse_log_level("debug"), LogLevel::kDebug);
  EXPECT_EQ(parse_log_level("off"), LogLevel::kOff);
  try {
    parse_log_level("warn");
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("debug, info, warning, error, off"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace farandole
