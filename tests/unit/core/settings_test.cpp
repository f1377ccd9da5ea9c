// SPDX-License-Identifier: Apache-2.0
#include "farandole/core/settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "farandole/core/error.h"

namespace farandole {
namespace {

Settings parse(std::vector<std::string> variables) {
  return Settings::parse(variables);
}

std::string refusal(std::vector<std::string> variables) {
  try {
    parse(std::move(variables));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

testing::AssertionResult contains(const std::string& text, std::string_view part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << text << "' does not contain '" << part << "'";
}

TEST(Settings, ReadsEveryKindOfValue) {
  const Settings settings =
      parse({"FARANDOLE_ALLREDUCE=ring", "FARANDOLE_SEGMENT_BYTES=64K", "FARANDOLE_BUCKET_BYTES=1g",
             "FARANDOLE_CHECK=off", "FARANDOLE_TIMEOUT=2min", "FARANDOLE_WARN_AFTER=100ms", "FARANDOLE_RANK=2",
             "FARANDOLE_SIZE=3", "FARANDOLE_PLUGIN_DIR=lib=a", "FARANDOLE_JOB=", "HOME=ignored"});
  EXPECT_EQ(settings.collectives.allreduce, "ring");
  EXPECT_EQ(settings.collectives.segment_bytes, 65536);
  EXPECT_EQ(settings.gradients.bucket_bytes, 1 << 30);
  EXPECT_EQ(settings.collectives.check, "off");
  EXPECT_DOUBLE_EQ(settings.faults.timeout.count(), 120);
  EXPECT_DOUBLE_EQ(settings.faults.warn_after.count(), 0.1);
  EXPECT_EQ(settings.launch.rank, 2);
  EXPECT_EQ(settings.process.plugin_directory, "lib=a");
  EXPECT_EQ(settings.launch.job, "");
  EXPECT_EQ(settings.collectives.broadcast, "auto");
}

TEST(Settings, ReadsTheEnvironment) {
  ASSERT_EQ(setenv("FARANDOLE_GATHER", "linear", 1), 0);
  EXPECT_EQ(Settings::from_environment().collectives.gather, "linear");
  ASSERT_EQ(setenv("FARANDOLE_GATHR", "linear", 1), 0);
  EXPECT_THROW(Settings::from_environment(), InvalidArgument);
  unsetenv("FARANDOLE_GATHR");
  unsetenv("FARANDOLE_GATHER");
  EXPECT_EQ(Settings::from_environment().collectives.gather, "auto");
}

TEST(Settings, AnUnknownVariableIsRefusedWithTheNearestOne) {
  EXPECT_TRUE(contains(refusal({"FARANDOLE_ALLREDCUE=ring"}), "did you mean FARANDOLE_ALLREDUCE"));
  EXPECT_TRUE(contains(refusal({"FARANDOLE_SEGMENT_SIZE=1"}), "did you mean FARANDOLE_SEGMENT_BYTES"));
  EXPECT_TRUE(contains(refusal({"FARANDOLE_QQQQ=1"}), "FARANDOLE_QQQQ is no setting of Farandole;"));
}

TEST(Settings, ServiceLinksOfKubernetesArePassedOver) {
  const std::vector<std::string> links{"FARANDOLE_SERVICE_HOST=10.43.7.1",
                                       "FARANDOLE_SERVICE_PORT=80",
                                       "FARANDOLE_SERVICE_PORT_HTTP_API=80",
                                       "FARANDOLE_PORT=tcp://10.43.7.1:80",
                                       "FARANDOLE_PORT_80_TCP=tcp://10.43.7.1:80",
                                       "FARANDOLE_PORT_80_TCP_PROTO=tcp",
                                       "FARANDOLE_PORT_80_TCP_PORT=80",
                                       "FARANDOLE_PORT_80_TCP_ADDR=10.43.7.1",
                                       "FARANDOLE_PORT_53_UDP=udp://[fd00::7]:53",
                                       "FARANDOLE_JOB_MASTER_SERVICE_HOST=fd00::7",
                                       "FARANDOLE_JOB_MASTER_PORT_29500_TCP_ADDR=fd00::7"};
  EXPECT_EQ(Settings::parse(links).launch.job, "");
  for (const std::string misspelt :
       {"FARANDOLE_PORT=29500", "FARANDOLE_SERVICE_HOST=node1", "FARANDOLE_RANK_PORT=x", "FARANDOLE_TRANSPORT=tcp",
        "FARANDOLE_SERVICE_PORT=", "FARANDOLE_PORTS=tcp://10.43.7.1:80"}) {
    EXPECT_TRUE(contains(refusal({misspelt}), "is no setting of Farandole")) << misspelt;
  }
  EXPECT_TRUE(contains(refusal({"FARANDOLE_PORT=" + std::string(100'000, '1')}), "is no setting of Farandole"));
}

TEST(Settings, InvalidValueErrorListsValidValues) {
  const std::string choice = refusal({"FARANDOLE_ALLREDUCE=rung"});
  EXPECT_TRUE(contains(choice, "FARANDOLE_ALLREDUCE is 'rung' (did you mean 'ring'?)"));
  EXPECT_TRUE(contains(choice, "recursive_doubling"));
  EXPECT_TRUE(contains(refusal({"FARANDOLE_SEGMENT_BYTES=63"}), "is '63'; it must be bytes from 64 to 1GiB"));
  EXPECT_TRUE(contains(refusal({"FARANDOLE_TIMEOUT=-1"}), "seconds from 0 to 604800"));
  EXPECT_TRUE(contains(refusal({"FARANDOLE_CHECK=1"}), "one of on, strict, off"));
  EXPECT_TRUE(contains(refusal({"FARANDOLE_RANK=2", "FARANDOLE_SIZE=2"}), "numbered from 0 to 1"));
  for (const char* wrong :
       {"FARANDOLE_TIMEOUT=", "FARANDOLE_TIMEOUT=inf", "FARANDOLE_TIMEOUT=nan", "FARANDOLE_TIMEOUT=5 s",
        "FARANDOLE_TIMEOUT=1e99", "FARANDOLE_RANK=1.5", "FARANDOLE_RANK=-2", "FARANDOLE_RANK=", "FARANDOLE_SIZE=0",
        "FARANDOLE_RANK=99999999999999999999", "FARANDOLE_BUCKET_BYTES=0", "FARANDOLE_BUCKET_BYTES=9999999T",
        "FARANDOLE_FLIGHT_DIR=", "FARANDOLE_ISA=", "FARANDOLE_CHECK", "FARANDOLE_LOG=Warning"}) {
    EXPECT_NE(refusal({wrong}), "accepted") << wrong;
  }
}

TEST(Settings, BytesHaveSuffixes) {
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("1000"), 1000);
  EXPECT_EQ(parse_bytes("7b"), 7);
  EXPECT_EQ(parse_bytes("64K"), 65536);
  EXPECT_EQ(parse_bytes("4MiB"), 4 << 20);
  EXPECT_EQ(parse_bytes("1g"), 1 << 30);
  EXPECT_EQ(parse_bytes("2TB"), std::int64_t{2} << 40);
  for (const char* wrong : {"", "K", "-1", "1.5M", "4 MiB", "4Q", "4KK", "9223372036854775807K", "0x10"}) {
    EXPECT_THROW(parse_bytes(wrong), InvalidArgument) << wrong;
  }
}

TEST(Settings, TheTableHasEveryMemberOnce) {
  std::set<std::string_view> variables;
  const Settings defaults;
  for (const SettingInfo& info : settings_table()) {
    EXPECT_TRUE(variables.insert(info.variable).second) << info.variable;
    EXPECT_FALSE(info.meaning.empty()) << info.variable;
    for (const SettingInfo& other : settings_table()) {
      EXPECT_EQ(other.field == info.field, &other == &info) << info.variable << " " << other.variable;
    }
    // Every default is a value that its own variable accepts, and comes back as it was.
    const std::string text = value_text(defaults, info);
    EXPECT_EQ(value_text(parse({std::string(info.variable) + "=" + text}), info), text);
  }
  // Does not compile when a member is added; then the table gets a row and the numbers grow.
  const auto& [collectives, shared_memory, gradients, engine, faults, launch, network, devices, process] = defaults;
  const auto& [c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11] = collectives;
  const auto& [s1, s2, s3, s4, s5, s6] = shared_memory;
  const auto& [g1, g2] = gradients;
  const auto& [e1, e2, e3, e4] = engine;
  const auto& [f1, f2, f3, f4, f5] = faults;
  const auto& [l1, l2, l3, l4, l5, l6, l7] = launch;
  const auto& [n1, n2, n3, n4, n5, n6, n7] = network;
  const auto& [d1, d2, d3, d4, d5, d6, d7] = devices;
  const auto& [p1, p2, p3] = process;
  static_cast<void>(std::tie(c1, s1, g1, e1, f1, l1, n1, d1, p1));
  EXPECT_EQ(variables.size(), 52U);
}

TEST(Settings, ValuesAreWrittenAsTheyAreRead) {
  const Settings settings = parse({"FARANDOLE_SEGMENT_BYTES=1536K", "FARANDOLE_TIMEOUT=0.25", "FARANDOLE_CHECK=off"});
  const auto text_of = [&](std::string_view variable) {
    for (const SettingInfo& info : settings_table()) {
      if (info.variable == variable) return value_text(settings, info);
    }
    return std::string("no such row");
  };
  EXPECT_EQ(text_of("FARANDOLE_SEGMENT_BYTES"), "1536KiB");
  EXPECT_EQ(text_of("FARANDOLE_TIMEOUT"), "0.25");
  EXPECT_EQ(text_of("FARANDOLE_CHECK"), "off");
  EXPECT_EQ(text_of("FARANDOLE_BUCKET_BYTES"), "4MiB");
}

TEST(Settings, RankZerosAgreedValuesAreAdopted) {
  const Settings root = parse({"FARANDOLE_ALLREDUCE=ring", "FARANDOLE_TIMEOUT=1.5", "FARANDOLE_LOG=debug"});
  Settings other = parse({"FARANDOLE_CHECK=off", "FARANDOLE_JOB=mine"});
  const std::vector<std::string> differences = adopt_agreed(other, encode_agreed(root));
  EXPECT_EQ(other.collectives.allreduce, "ring");
  EXPECT_DOUBLE_EQ(other.faults.timeout.count(), 1.5);
  EXPECT_EQ(other.collectives.check, "on");
  EXPECT_EQ(other.launch.job, "mine") << "what is not agreed stays";
  EXPECT_EQ(other.process.log_level, "warning");
  ASSERT_EQ(differences.size(), 3U);
  EXPECT_TRUE(contains(differences[0], "FARANDOLE_ALLREDUCE is auto here and ring on rank 0"));
  EXPECT_TRUE(adopt_agreed(other, encode_agreed(root)).empty());
}

TEST(Settings, AgreedValuesOfAnotherVersionAreRefused) {
  Settings settings;
  EXPECT_THROW(adopt_agreed(settings, "{}"), Mismatch);
  EXPECT_THROW(adopt_agreed(settings, "no JSON"), Mismatch);
}

TEST(Nearest, FindsSlipsAndNothingElse) {
  const std::vector<std::string_view> words{"ring", "binomial_tree", "circulant"};
  EXPECT_EQ(nearest("rnig", words), "ring");
  EXPECT_EQ(nearest("RING", words), "ring");
  EXPECT_EQ(nearest("mip", std::vector<std::string_view>{"mpi"}), "mpi") << "an exchange is one slip";
  EXPECT_EQ(nearest("binomialtree", words), "binomial_tree");
  EXPECT_EQ(nearest("xyz", words), std::nullopt);
  EXPECT_EQ(nearest("", words), std::nullopt);
}

TEST(Settings, TheDocumentationIsTheTable) {
  const std::string path = FARANDOLE_DOCS_DIRECTORY "/configuration.md";
  std::ifstream file(path);
  ASSERT_TRUE(file) << path << " is missing";
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), settings_markdown()) << "run: farandole-info --config markdown > docs/configuration.md";
}

}  // namespace
}  // namespace farandole
