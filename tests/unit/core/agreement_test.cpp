// SPDX-License-Identifier: Apache-2.0
#include "job/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "farandole/core/error.h"

namespace farandole {
namespace {

using testing::HasSubstr;

/// A directory of this test that goes with it.
class Directory {
 public:
  Directory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "farandole-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  std::string file(const std::string& contents) const {
    std::string name = (path_ / "table.json").string();
    std::ofstream(name) << contents;
    return name;
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

Settings with_tuning(const std::string& path) {
  Settings settings;
  settings.collectives.tuning = path;
  return settings;
}

TEST(Agreement, ComesBackAsItWas) {
  for (const Agreement& agreement :
       {Agreement{"{}", "", ""}, Agreement{"a b", std::string("1 2\0\n\xff", 6), ""}, Agreement{"s", "", "why not"}}) {
    const Agreement back = decode_agreement(encode(agreement));
    EXPECT_EQ(back.settings, agreement.settings);
    EXPECT_EQ(back.tuning, agreement.tuning);
    EXPECT_EQ(back.problem, agreement.problem);
  }
}

TEST(Agreement, InvalidOrOtherVersionIsRefused) {
  for (const char* text : {"", "{}", "1 1 1", "1 1 1 ab", "1 1 1 abcd", "1 -1 1 abc", "99999999999999999999 1 1 abc"}) {
    EXPECT_THROW(decode_agreement(text), Mismatch) << text;
  }
}

TEST(Agreement, HasTheFileOfTheSettingOrWhyNot) {
  EXPECT_EQ(make_agreement(Settings{}).tuning, "");
  const Directory directory;
  const Agreement found = make_agreement(with_tuning(directory.file("a table\n")));
  EXPECT_EQ(found.tuning, "a table\n");
  EXPECT_EQ(found.problem, "");
  EXPECT_THAT(make_agreement(with_tuning(directory.path() + "/no")).problem,
              testing::AllOf(HasSubstr("FARANDOLE_TUNING"), HasSubstr("/no'"), HasSubstr("No such file")));
  EXPECT_THAT(make_agreement(with_tuning(directory.path())).problem, HasSubstr("directory"));
  EXPECT_THAT(make_agreement(with_tuning(directory.file(std::string((1 << 20) + 1, 'x')))).problem,
              HasSubstr("more than 1048576 bytes"));
}

/// One of several processes, all of which receive the text that process 0 passed to the same gather.
class ScriptedGroup final : public ProcessGroup {
 public:
  ScriptedGroup(int process, std::vector<std::string>& first) : process_(process), first_(first) {}
  int process() const override { return process_; }
  int process_count() const override { return 3; }
  void allgather(const void* mine, void* all, std::size_t bytes) override {
    if (process_ == 0) first_.emplace_back(static_cast<const char*>(mine), bytes);
    std::memset(all, 0x55, 3 * bytes);
    std::memcpy(all, first_.at(calls_++).data(), bytes);
  }
  ThreadUse thread_use() const override { return ThreadUse::kAnyThread; }
  std::string thread_advice() const override { return {}; }
  Transport& transport() override { std::abort(); }
  void set_topology(const Topology&) override {}
  void post(int, const ControlMessage&) override {}
  std::optional<ControlMessage> poll() override { return std::nullopt; }
  std::unique_ptr<VendorCollectives> vendor_collectives(std::span<const int>, std::uint16_t) override {
    return nullptr;
  }
  bool is_flushed() override { return true; }
  void rest() override {}
  void leave() override {}
  std::size_t calls() const { return calls_; }

 private:
  const int process_;
  std::vector<std::string>& first_;
  std::size_t calls_ = 0;
};

TEST(Agreement, TextsOfAnyLengthReachAllProcesses) {
  for (const std::size_t length : {0, 1, 4087, 4088, 4089, 8176, 100'000}) {
    std::string text;
    for (std::size_t i = 0; i < length; ++i) text += static_cast<char>(i % 251);
    std::vector<std::string> pieces;
    ScriptedGroup first(0, pieces), other(2, pieces);
    EXPECT_EQ(share_text(first, text), text) << length;
    EXPECT_EQ(share_text(other, "what this one would say"), text) << length;
    EXPECT_EQ(other.calls(), first.calls()) << length;
  }
}

TEST(Agreement, TextOfAnImpossibleLengthIsRefused) {
  const auto piece = [](std::uint64_t length) {
    std::string bytes(4096, 'x');
    return bytes.replace(0, sizeof length, reinterpret_cast<const char*>(&length), sizeof length);
  };
  for (const auto& pieces : {std::vector{piece(~0ULL)}, std::vector{piece((16 << 20) + 1)},
                             std::vector{piece(10'000), piece(100)}, std::vector{piece(10'000), piece(20'000)}}) {
    std::vector<std::string> heard = pieces;
    ScriptedGroup other(1, heard);
    EXPECT_THROW(share_text(other, ""), TransportError);
    EXPECT_EQ(other.calls(), pieces.size());
  }
}

}  // namespace
}  // namespace farandole
