// SPDX-License-Identifier: Apache-2.0
// Sources of the key of a job that is started without MPI.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "farandole/core/error.h"
#include "farandole/core/settings.h"
#include "message_of.h"
#include "sockets/descriptor.h"
#include "tcp/job_key.h"

namespace farandole::tcp {
namespace {

using sockets::UniqueDescriptor;
using test::message_of;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const JobName kName{"node1:29500", ""};
const std::string kDigits = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

JobKey key_of_digits() {
  JobKey key{};
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<unsigned char>(0x11 * (i % 16));
  return key;
}

class TcpJobKey : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(testing::TempDir()) / ("farandole-key-test-" + std::to_string(getpid()));
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string put_file(const std::string& name, const std::string& text, mode_t mode = 0600) const {
    std::string file = (directory_ / name).string();
    std::ofstream(file) << text;
    chmod(file.c_str(), mode);
    return file;
  }
  JobKey read(const Settings& settings, const JobName& name = kName) { return read_job_key(settings, name, kept_); }
  JobKey read_environment() { return read(Settings::from_environment()); }
  JobKey read_file(const std::string& file) {
    Settings settings;
    settings.network.job_key_file = file;
    return read(settings);
  }
  /// Where FARANDOLE_JOB_KEY_FD names it.
  JobKey read_descriptor(int descriptor) {
    setenv("FARANDOLE_JOB_KEY_FD", std::to_string(descriptor).c_str(), 1);
    return read_environment();
  }
  std::string refusal_of(const std::string& file) {
    return message_of<InvalidArgument>([&] { read_file(file); });
  }

  std::filesystem::path directory_;
  KeptKey kept_;
};

TEST_F(TcpJobKey, WithoutAKeyTheErrorListsAllSources) {
  EXPECT_THAT(message_of<InvalidArgument>([&] { read(Settings()); }),
              AllOf(HasSubstr("FARANDOLE_JOB_KEY_FILE"), HasSubstr("FARANDOLE_JOB_KEY,"),
                    HasSubstr("FARANDOLE_JOB_KEY_FD"), HasSubstr("FARANDOLE_TRUST_NETWORK=on")));
}

TEST_F(TcpJobKey, ComesFromAFile) {
  EXPECT_EQ(read_file(put_file("key", kDigits)), key_of_digits());
  EXPECT_EQ(read_file(put_file("with end of line", kDigits + "\n")), key_of_digits());
  EXPECT_EQ(read_file(put_file("read only", kDigits, 0400)), key_of_digits());
}

TEST_F(TcpJobKey, AFileThatIsNotSafeIsRefused) {
  EXPECT_THAT(refusal_of(put_file("group", kDigits, 0640)), HasSubstr("has mode 0640; it must have mode 0600"));
  EXPECT_THAT(refusal_of(put_file("world", kDigits, 0602)), HasSubstr("has mode 0602"));
  std::filesystem::create_symlink(put_file("target", kDigits), directory_ / "link");
  EXPECT_THAT(refusal_of((directory_ / "link").string()), HasSubstr("symbolic link"));
  EXPECT_THAT(refusal_of(directory_.string()), HasSubstr("no regular file"));
  ASSERT_EQ(mkfifo((directory_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal_of((directory_ / "pipe").string()), HasSubstr("no regular file"));
  EXPECT_THAT(refusal_of((directory_ / "missing").string()), HasSubstr("cannot be opened"));
  if (geteuid() == 0) {
    const std::string foreign = put_file("foreign", kDigits);
    ASSERT_EQ(chown(foreign.c_str(), 12345, 12345), 0);
    EXPECT_THAT(refusal_of(foreign), HasSubstr("belongs to user 12345"));
  }
}

TEST_F(TcpJobKey, InvalidKeyIsRefusedAndNotShown) {
  for (const std::string& wrong :
       {std::string(), kDigits.substr(1), kDigits + "0", "g" + kDigits.substr(1), kDigits + std::string(1000, 'f')}) {
    const std::string refusal = refusal_of(put_file("wrong", wrong));
    EXPECT_THAT(refusal, AllOf(HasSubstr("64 hexadecimal digits"), Not(HasSubstr("2233445566"))));
  }
}

TEST_F(TcpJobKey, SeveralWaysAreAnError) {
  Settings settings;
  settings.network.job_key_file = put_file("key", kDigits);
  settings.network.trust_network = true;
  settings.network.job_key = kDigits;
  EXPECT_THAT(message_of<InvalidArgument>([&] { read(settings); }),
              AllOf(HasSubstr("FARANDOLE_JOB_KEY_FILE and FARANDOLE_JOB_KEY and FARANDOLE_TRUST_NETWORK=on are set"),
                    Not(HasSubstr(kDigits))));
}

TEST_F(TcpJobKey, WithoutProtectionItComesFromTheName) {
  Settings settings;
  settings.network.trust_network = true;
  const JobKey key = read(settings);
  EXPECT_EQ(read(settings), key);
  EXPECT_NE(read(settings, {"node1:29501", ""}), key);
  EXPECT_NE(read(settings, {"node1:29500", "other"}), key);
}

TEST_F(TcpJobKey, TheNumberOfAJobComesFromItsName) {
  EXPECT_EQ(job_number(kName), job_number({"node1:29500", ""}));
  EXPECT_NE(job_number(kName), job_number({"node1:29501", ""}));
  EXPECT_NE(job_number(kName), job_number({"node1:29500", "other"}));
}

TEST_F(TcpJobKey, TheVariableIsScrubbedAndTheKeyKept) {
  setenv("FARANDOLE_JOB_KEY", kDigits.c_str(), 1);
  const char* const value = getenv("FARANDOLE_JOB_KEY");
  EXPECT_EQ(read_environment(), key_of_digits());
  EXPECT_EQ(getenv("FARANDOLE_JOB_KEY"), nullptr);
  EXPECT_EQ(std::string(value), "") << "it is still in the environment's memory";
  EXPECT_EQ(read_environment(), key_of_digits()) << "the process joins again";
}

/// A pipe with that text. @param write_end  stays open
int pipe_with(const std::string& text, UniqueDescriptor& write_end) {
  int ends[2] = {};
  EXPECT_EQ(pipe(ends), 0);
  write_end = UniqueDescriptor(ends[1]);
  EXPECT_EQ(write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return ends[0];
}

TEST_F(TcpJobKey, TheDescriptorIsReadAndClosed) {
  UniqueDescriptor write_end;
  const int pipe = pipe_with("ff" + kDigits.substr(2), write_end);
  write_end = UniqueDescriptor();
  const JobKey key = read_descriptor(pipe);
  EXPECT_EQ(key[0], 0xff);
  EXPECT_EQ(fcntl(pipe, F_GETFD), -1);
  EXPECT_EQ(getenv("FARANDOLE_JOB_KEY_FD"), nullptr);
  EXPECT_EQ(read_environment(), key);
}

/// The launcher has passed its own end on, too, so that the pipe never ends.
TEST_F(TcpJobKey, APipeThatStaysOpenIsNotReadToItsEnd) {
  UniqueDescriptor write_end;
  EXPECT_EQ(read_descriptor(pipe_with(kDigits, write_end)), key_of_digits());
  EXPECT_EQ(read_descriptor(pipe_with(kDigits + "\n", write_end)), key_of_digits());
  EXPECT_THAT(message_of<InvalidArgument>([&] { read_descriptor(pipe_with("0123\n", write_end)); }),
              HasSubstr("64 hexadecimal digits"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { read_descriptor(pipe_with(kDigits + "0\n", write_end)); }),
              HasSubstr("more characters"));
}

/// The ranks of a host have inherited one descriptor, and with it one position in the file.
TEST_F(TcpJobKey, EachProcessReadsTheFileOfADescriptorFromItsStart) {
  const std::string file = put_file("key", kDigits + "\n");
  const UniqueDescriptor inherited(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  for (int process = 0; process < 2; ++process) EXPECT_EQ(read_descriptor(dup(inherited.get())), key_of_digits());
}

TEST_F(TcpJobKey, NoTableShowsTheValue) {
  const Settings settings = Settings::parse(std::vector<std::string>{"FARANDOLE_JOB_KEY=" + kDigits});
  EXPECT_EQ(settings.network.job_key, kDigits);
  for (const SettingInfo& info : settings_table()) {
    EXPECT_THAT(value_text(settings, info), Not(HasSubstr(kDigits.substr(0, 8)))) << info.variable;
    if (info.variable == "FARANDOLE_JOB_KEY") {
      EXPECT_EQ(value_text(settings, info), "(secret)");
    }
  }
}

}  // namespace
}  // namespace farandole::tcp
