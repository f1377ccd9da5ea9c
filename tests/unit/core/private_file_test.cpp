// SPDX-License-Identifier: Apache-2.0
#include "faults/private_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace farandole {
namespace {

namespace fs = std::filesystem;

class PrivateFile : public testing::Test {
 protected:
  PrivateFile() {
    std::string pattern = (fs::temp_directory_path() / "farandole-XXXXXX").string();
    top_ = mkdtemp(pattern.data());
  }
  ~PrivateFile() override { fs::remove_all(top_); }
  static unsigned mode(const fs::path& path) {
    struct stat status {};
    EXPECT_EQ(lstat(path.c_str(), &status), 0);
    return status.st_mode & 0777;
  }
  static std::string content(const fs::path& file) {
    std::ifstream input(file);
    return {std::istreambuf_iterator<char>(input), {}};
  }

  fs::path top_;
};

TEST_F(PrivateFile, AndItsNewDirectoryAreForThisUserAlone) {
  const fs::path directory = top_ / "a" / "b";
  EXPECT_EQ(write_private_file(directory, "x", "first"), "");
  EXPECT_EQ(write_private_file(directory, "x", "second, longer"), "");
  EXPECT_EQ(content(directory / "x"), "second, longer");
  EXPECT_EQ(mode(directory / "x"), 0600U);
  EXPECT_EQ(mode(directory), 0700U);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory), {}), 1) << "nothing else is left";
}

TEST_F(PrivateFile, ReplacesALinkAndDoesNotFollowIt) {
  const fs::path victim = top_ / "victim";
  std::ofstream(victim) << "mine";
  fs::create_symlink(victim, top_ / "x");
  EXPECT_EQ(write_private_file(top_, "x", "text"), "");
  EXPECT_EQ(content(victim), "mine");
  EXPECT_EQ(content(top_ / "x"), "text");
  EXPECT_FALSE(fs::is_symlink(top_ / "x"));
}

TEST_F(PrivateFile, ReportsWhyItCannotBeWritten) {
  std::ofstream(top_ / "file") << "";
  EXPECT_THAT(write_private_file(top_ / "file", "x", "text"), testing::HasSubstr("file/x: Not a directory"));
  fs::create_directory(top_ / "x");
  EXPECT_THAT(write_private_file(top_, "x", "text"), testing::HasSubstr("x: Is a directory"));
  EXPECT_EQ(std::distance(fs::directory_iterator(top_), {}), 2) << "nothing is left";
}

}  // namespace
}  // namespace farandole
