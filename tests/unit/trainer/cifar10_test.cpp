// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "farandole/core/error.h"
#include "farandole/trainer/data_files.h"
#include "trainer_files.h"

namespace farandole::trainer {
namespace {

using farandole::test::message_of;
using test::contains;
using test::write_bytes;

/// Record of class `label`: red is `red` everywhere, green 2, blue the number of the pixel.
std::string record(char label, char red) {
  std::string bytes{label};
  bytes.append(1024, red);
  bytes.append(1024, '\2');
  for (int pixel = 0; pixel < 1024; ++pixel) bytes += static_cast<char>(pixel);
  return bytes;
}

class Cifar10 : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(directory());
    for (char part = 1; part <= 5; ++part) {
      write_bytes(directory() / ("data_batch_" + std::to_string(part) + ".bin"), record(part, part) + record(9, 0));
    }
    write_bytes(directory() / "test_batch.bin", record(0, '\xff'));
  }
  std::filesystem::path parent() const { return temporary_.path(); }
  std::filesystem::path directory() const { return parent() / "cifar-10-batches-bin"; }
  std::string refusal() const {
    return message_of<DataError>([&] { load_cifar10(directory()); });
  }

 private:
  test::TemporaryDirectory temporary_;
};

TEST_F(Cifar10, HasTenClassesOfColourImages) {
  for (const auto& place : {directory(), parent()}) {
    const TrainingData data = load_cifar10(place);
    EXPECT_EQ(data.training->size(), 10);
    EXPECT_EQ(data.test->size(), 1);
    EXPECT_EQ(data.training->shape(), (Shape{32, 32, 3}));
    EXPECT_EQ(data.training->classes(), 10);
    EXPECT_EQ(data.training->class_names()[9], "truck");
    Batch<double> batch;
    data.training->gather(std::vector<std::uint32_t>{8, 3}, batch);
    EXPECT_EQ(batch.labels, (std::vector<std::int32_t>{5, 9}));
    EXPECT_DOUBLE_EQ(batch.inputs.data()[0], (5.0 / 255 - 0.4914) / 0.2470);
    EXPECT_DOUBLE_EQ(batch.inputs.data()[1], (2.0 / 255 - 0.4822) / 0.2435);
    EXPECT_DOUBLE_EQ(batch.inputs.data()[3 * 77 + 2], (77.0 / 255 - 0.4465) / 0.2616);
  }
}

TEST_F(Cifar10, AMissingFileErrorSaysWhereToGetIt) {
  std::filesystem::remove(directory() / "data_batch_3.bin");
  EXPECT_TRUE(contains(refusal(), "data_batch_3.bin: no such file. Get CIFAR-10's binary version"));
  EXPECT_TRUE(contains(message_of<DataError>([] { load_cifar10({}); }), "https://www.cs.toronto.edu/~kriz/cifar.html"));
}

TEST_F(Cifar10, DamagedFilesAreRefused) {
  const auto file = directory() / "test_batch.bin";
  write_bytes(file, record(0, 0).substr(1));
  EXPECT_TRUE(contains(refusal(), "test_batch.bin: 3072 bytes, expected a multiple of 3073"));
  write_bytes(file, "");
  EXPECT_TRUE(contains(refusal(), "test_batch.bin: 0 bytes"));
  write_bytes(file, record(0, 0) + record(10, 0));
  EXPECT_TRUE(contains(refusal(), "test_batch.bin: image 1 has class 10, expected 0 to 9"));
}

}  // namespace
}  // namespace farandole::trainer
