// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "farandole/core/error.h"
#include "farandole/trainer/data_files.h"
#include "trainer_files.h"

namespace farandole::trainer {
namespace {

using farandole::test::message_of;
using test::contains;
using testing::ElementsAre;
using SymbolNumbers = std::vector<std::int32_t>;

TEST(Alphabet, CharactersAreNumberedInTheirOrder) {
  const auto alphabet = Alphabet::of("hello");
  EXPECT_EQ(alphabet.size(), 4);
  EXPECT_THAT(alphabet.symbols(), ElementsAre("e", "h", "l", "o"));
  EXPECT_EQ(alphabet.encode("hole"), (SymbolNumbers{1, 3, 2, 0}));
  EXPECT_EQ(alphabet.decode(SymbolNumbers{1, 0}), "he");
  EXPECT_EQ(alphabet.encode(""), SymbolNumbers{});
}

TEST(Alphabet, CharactersMayHaveSeveralBytes) {
  const std::string text = "né€𝄞 né";
  const auto alphabet = Alphabet::of(text);
  EXPECT_THAT(alphabet.symbols(), ElementsAre(" ", "n", "é", "€", "𝄞"));
  EXPECT_EQ(alphabet.encode(text), (SymbolNumbers{1, 2, 3, 4, 0, 1, 2}));
  EXPECT_EQ(alphabet.decode(alphabet.encode(text)), text);
}

TEST(Alphabet, BytesTakeAnyText) {
  const auto alphabet = Alphabet::bytes();
  EXPECT_EQ(alphabet.size(), 256);
  EXPECT_EQ(alphabet.encode("a\xff"), (SymbolNumbers{97, 255}));
  EXPECT_EQ(alphabet.decode(SymbolNumbers{97, 255, 0}), std::string("a\xff\0", 3));
}

TEST(Alphabet, UnknownSymbolsAreNamed) {
  const auto alphabet = Alphabet::of("abc");
  EXPECT_EQ(message_of<DataError>([&] { alphabet.encode("abcé"); }),
            "byte 3 of the text begins the character 'é', which the alphabet lacks");
  EXPECT_EQ(message_of<InvalidArgument>([&] { alphabet.decode(SymbolNumbers{3}); }),
            "the alphabet has the symbols 0 to 2, not 3");
  EXPECT_THROW(alphabet.decode(SymbolNumbers{-1}), InvalidArgument);
  EXPECT_THROW(Alphabet::bytes().decode(SymbolNumbers{256}), InvalidArgument);
  EXPECT_THROW(Alphabet::of(""), DataError);
}

TEST(Alphabet, TextThatIsNotUtf8IsRefused) {
  // A continuation, a cut character, overlong forms, a surrogate, beyond the last code point, no byte of UTF-8.
  for (const char* text : {"x\x80", "x\xe2\x82", "x\xc0\x80", "x\xe0\x80\x80", "x\xf0\x80\x80\x80", "x\xed\xa0\x80",
                           "x\xf4\x90\x80\x80", "x\xff", "x\xc3z"}) {
    EXPECT_TRUE(contains(message_of<DataError>([&] { Alphabet::of(text); }), "the text is not UTF-8: byte 1 (0x"));
  }
}

TEST(Text, LabelsAreTheNextSymbols) {
  const TextData data = text_dataset("abcdefgh", {.length = 3, .test_fraction = 0});
  EXPECT_EQ(data.test, nullptr);
  EXPECT_EQ(data.training->size(), 2);
  EXPECT_EQ(data.training->shape(), Shape{3});
  EXPECT_EQ(data.training->classes(), 8);
  EXPECT_EQ(data.training->labels_per_sample(), 3);
  Batch<float> batch;
  data.training->gather(std::vector<std::uint32_t>{1, 0}, batch);
  EXPECT_THAT(batch.inputs.host(), ElementsAre(3, 4, 5, 0, 1, 2));
  EXPECT_EQ(batch.labels, (SymbolNumbers{4, 5, 6, 1, 2, 3}));
  Batch<double> same;
  data.training->gather(std::vector<std::uint32_t>{1, 0}, same);
  EXPECT_EQ(same.labels, batch.labels);
}

TEST(Text, StrideMayOverlapSamples) {
  const TextData data = text_dataset("abcdefgh", {.length = 3, .stride = 2, .test_fraction = 0});
  EXPECT_EQ(data.training->size(), 3);
  Batch<float> batch;
  data.training->gather(std::vector<std::uint32_t>{2}, batch);
  EXPECT_EQ(data.alphabet.decode(batch.labels), "fgh");
}

TEST(Text, EndBecomesTheTestSet) {
  const TextData data = text_dataset("aaaaaaabbb", {.length = 2, .test_fraction = 0.3});
  EXPECT_EQ(data.training->size(), 3);
  EXPECT_EQ(data.test->size(), 1);
  Batch<float> batch;
  data.test->gather(std::vector<std::uint32_t>{0}, batch);
  EXPECT_EQ(batch.labels, (SymbolNumbers{1, 1}));
  data.training->gather(std::vector<std::uint32_t>{0, 1, 2}, batch);
  EXPECT_EQ(batch.labels, SymbolNumbers(6, 0));
}

TEST(Text, GivenAlphabetsAreUsed) {
  EXPECT_EQ(
      text_dataset("a\xff z", {.length = 1, .alphabet = Alphabet::bytes(), .test_fraction = 0}).training->classes(),
      256);
  EXPECT_THROW(text_dataset("abd", {.length = 1, .alphabet = Alphabet::of("abc"), .test_fraction = 0}), DataError);
}

TEST(Text, LargeAlphabetsKeepTheirNumbers) {
  std::string text;
  for (unsigned code = 0x4e00; code < 0x4e00 + 300; ++code) {
    text += static_cast<char>(0xe0 | code >> 12);
    text += static_cast<char>(0x80 | (code >> 6 & 0x3f));
    text += static_cast<char>(0x80 | (code & 0x3f));
  }
  const TextData data = text_dataset(text, {.length = 299, .test_fraction = 0});
  EXPECT_EQ(data.training->classes(), 300);
  Batch<float> batch;
  data.training->gather(std::vector<std::uint32_t>{0}, batch);
  EXPECT_EQ(batch.labels.back(), 299);
  EXPECT_EQ(batch.inputs.data()[298], 298);
}

TEST(Text, WrongOptionsAndShortTextsAreRefused) {
  EXPECT_THROW(text_dataset("abc", {.length = 0}), InvalidArgument);
  EXPECT_THROW(text_dataset("abc", {.length = 1, .stride = -1}), InvalidArgument);
  EXPECT_THROW(text_dataset("abc", {.length = 1, .test_fraction = 1}), InvalidArgument);
  EXPECT_EQ(message_of<DataError>([] { text_dataset("abc", {.length = 3, .test_fraction = 0}); }),
            "the text is too short: the training set has 3 symbols, and a sample of length 3 needs 4");
  EXPECT_EQ(message_of<DataError>([] { text_dataset("abcdefgh", {.length = 3, .test_fraction = 0.25}); }),
            "the text is too short: the test set has 2 symbols, and a sample of length 3 needs 4");
}

TEST(Text, ChecksumCoversSymbolsAndStride) {
  const auto checksum = [](const std::string& text, std::int64_t stride) {
    return text_dataset(text, {.length = 2, .stride = stride, .test_fraction = 0}).training->checksum();
  };
  EXPECT_EQ(checksum("abcabc", 2), checksum("abcabc", 0));
  EXPECT_NE(checksum("abcabc", 2), checksum("abcabc", 1));
  EXPECT_NE(checksum("abcabc", 2), checksum("abcabb", 2));
  EXPECT_NE(checksum("abcabc", 2), checksum("abdabd", 2));  // other symbols with the same numbers
}

TEST(Text, FilesAreReadAndNamed) {
  const test::TemporaryDirectory directory;
  const auto file = directory.path() / "poem.txt";
  test::write_bytes(file, "roses are red");
  const TextData data = text_file_dataset(file, {.length = 4, .test_fraction = 0});
  EXPECT_EQ(data.training->size(), 3);
  test::write_bytes(file, "roses\xff");
  EXPECT_EQ(message_of<DataError>([&] { text_file_dataset(file); }),
            file.string() +
                ": the text is not UTF-8: byte 5 (0xff) begins no character; convert it (iconv -t UTF-8), or use "
                "Alphabet::bytes() in a program, which takes any text");
  EXPECT_TRUE(contains(message_of<DataError>([&] { text_file_dataset(directory.path() / "none"); }), "cannot open"));
}

TEST(Text, ThreadsGatherTheSameValues) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += static_cast<char>('a' + i * i % 23);
  const TextData data = text_dataset(text, {.length = 16, .stride = 3});
  std::vector<std::uint32_t> samples;
  for (std::uint32_t i = 0; i < data.training->size(); i += 2) samples.push_back(i);
  std::vector<Batch<float>> batches(4);
  std::vector<std::thread> threads;
  for (Batch<float>& batch : batches) threads.emplace_back([&] { data.training->gather(samples, batch); });
  for (std::thread& thread : threads) thread.join();
  for (const Batch<float>& batch : batches) EXPECT_EQ(batch.labels, batches[0].labels);
  EXPECT_EQ(data.alphabet.decode(std::span(batches[0].labels).first(16)), text.substr(1, 16));
}

}  // namespace
}  // namespace farandole::trainer
