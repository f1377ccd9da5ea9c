// SPDX-License-Identifier: Apache-2.0
#include "safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "farandole/core/error.h"
#include "trainer_files.h"

namespace farandole::trainer {
namespace {

using farandole::test::message_of;
using test::contains;
using test::read_bytes;
using test::write_bytes;

class Safetensors : public testing::Test {
 protected:
  void SetUp() override {
    write_safetensors(file_,
                      std::vector<CheckpointTensor>{
                          {"layer.weight", {2, 3}, floats_}, {"layer.bias", {2}, doubles_}, {"none", {0}, none_}});
  }
  std::string refusal() const {
    return message_of<DataError>([&] { SafetensorsFile again(file_); });
  }

  test::TemporaryDirectory directory_;
  const std::filesystem::path file_ = directory_.path() / "x.safetensors";
  std::vector<float> floats_{1, 2, 3, 4, 5, 6.5F};
  std::vector<double> doubles_{-1.25, 1e300};
  std::vector<float> none_;
};

TEST_F(Safetensors, ReadsWhatItWrote) {
  const SafetensorsFile content(file_);
  ASSERT_EQ(content.entries().size(), 3U);
  EXPECT_EQ(content.entries()[0].name, "layer.weight");
  EXPECT_EQ(content.entries()[0].shape, (Shape{2, 3}));
  const auto* bias = content.find("layer.bias");
  ASSERT_NE(bias, nullptr);
  EXPECT_EQ(bias->dtype, DType::kF64);
  ASSERT_EQ(bias->bytes.size(), 16U);
  // Compare bits, not only values.
  const auto* expected = reinterpret_cast<const std::byte*>(doubles_.data());
  EXPECT_TRUE(std::equal(expected, expected + 16, reinterpret_cast<const std::byte*>(bias->bytes.data())));
  EXPECT_EQ(content.find("other"), nullptr);
}

TEST_F(Safetensors, TheLayoutIsTheFormats) {
  const std::string bytes = read_bytes(file_);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0U);
  EXPECT_EQ(bytes.size(), 8 + length + 24 + 16);
  EXPECT_TRUE(contains(bytes.substr(8, length),
                       R"({"layer.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"layer.bias")"));
}

TEST_F(Safetensors, ACutFileNamesTheTensor) {
  const std::string bytes = read_bytes(file_);
  write_bytes(file_, bytes.substr(0, bytes.size() - 1));
  EXPECT_TRUE(contains(refusal(), "'layer.bias' is cut"));
  write_bytes(file_, bytes.substr(0, bytes.size() - 17));
  EXPECT_TRUE(contains(refusal(), "'layer.weight' is cut"));
}

TEST_F(Safetensors, EveryCutIsRefused) {
  const std::string bytes = read_bytes(file_);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    write_bytes(file_, bytes.substr(0, length));
    EXPECT_TRUE(contains(refusal(), file_.string())) << "cut to " << length;
  }
}

TEST_F(Safetensors, AlteredHeadersAreRefused) {
  const std::string bytes = read_bytes(file_);
  const auto altered = [&](const std::string& from, const std::string& to) {
    std::string changed = bytes;
    changed.replace(changed.find(from), from.size(), to);
    write_bytes(file_, changed);
    return refusal();
  };
  EXPECT_TRUE(contains(altered("[2,3]", "[2,4]"), "'layer.weight'"));
  EXPECT_TRUE(contains(altered("[2,3]", "[-2,"), "header is altered"));
  EXPECT_TRUE(contains(altered("[24,40]", "[48,32]"), "'layer.bias'"));
  EXPECT_TRUE(contains(altered("F64", "I64"), "has type I64"));
  EXPECT_TRUE(contains(altered("{\"layer", "[\"layer"), "header is altered"));
}

TEST_F(Safetensors, OtherTypesAndExistingFilesAreRefused) {
  std::vector<std::int32_t> integers(2);
  const std::vector<CheckpointTensor> tensors{{"integers", {2}, integers}};
  EXPECT_THROW(write_safetensors(directory_.path() / "y", tensors), InvalidArgument);
  const std::vector<CheckpointTensor> good{{"layer.bias", {2}, doubles_}};
  EXPECT_TRUE(contains(message_of<DataError>([&] { write_safetensors(file_, good); }), file_.string()));
}

}  // namespace
}  // namespace farandole::trainer
