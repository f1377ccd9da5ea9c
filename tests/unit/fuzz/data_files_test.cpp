// SPDX-License-Identifier: Apache-2.0
// Readers of the trainer's data files, fed with slightly damaged files.
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdlib>
#include <vector>

#include "../trainer/image_files.h"
#include "../trainer/npy_files.h"
#include "../trainer/trainer_files.h"
#include "farandole/trainer/data_files.h"
#include "fuzz.h"
#include "image.h"

namespace farandole::fuzz {
namespace {

using namespace trainer::test;

/// A file whose contents change with each input: in memory, where there is such a place.
class DamagedFile {
 public:
  const std::filesystem::path& write(const std::string& bytes) {
    write_bytes(file_, bytes);
    return file_;
  }

 private:
  static TemporaryDirectory make_directory() {
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", /*overwrite=*/1);
    return {};
  }
  const TemporaryDirectory directory_ = make_directory();
  const std::filesystem::path file_ = directory_.path() / "x";
};

/// Writes the checksum that belongs to each chunk of a PNG, so that a change goes further than to the checksum.
std::string with_chunk_checksums(std::string png) {
  constexpr std::size_t kSignature = 8, kLength = 4, kType = 4, kChecksum = 4;
  std::size_t at = kSignature;
  while (at + kLength + kType + kChecksum <= png.size()) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < kLength; ++i) length = length << 8 | static_cast<unsigned char>(png[at + i]);
    if (length > png.size() - at - kLength - kType - kChecksum) break;
    const auto* const chunk = reinterpret_cast<const Bytef*>(png.data() + at + kLength);
    const auto checksum = crc32_z(0, chunk, kType + length);
    at += kLength + kType + length;
    for (std::size_t i = 0; i < kChecksum; ++i) png[at++] = static_cast<char>(checksum >> (8 * (kChecksum - 1 - i)));
  }
  return png;
}

/// Decodes an image, and looks at every pixel.
void decode(const std::string& input) {
  const trainer::Image image = trainer::decode_image(std::as_bytes(std::span(input)), "x");
  ASSERT_EQ(image.rgb.size(), static_cast<std::size_t>(3 * image.width * image.height));
  std::vector<std::uint8_t> sample(5 * 7 * 3);
  trainer::resize_and_crop(image, 5, 7, 3, sample.data());
}

TEST(Fuzz, PngFiles) {
  const auto pixels = smooth_pixels(12, 9);
  run({.share = 10,
       .corpus = {png_file(12, 9, pixels), png_file(12, 9, pixels, {.interlaced = true}),
                  png_file(9, 3, {1, 0, 200, 0, 77, 0}, {.color_type = PNG_COLOR_TYPE_GRAY, .bit_depth = 1}),
                  png_file(2, 2, {1, 0, 1, 1},
                           {.color_type = PNG_COLOR_TYPE_PALETTE, .palette = {{1, 2, 3}, {4, 5, 6}}}),
                  png_file(3, 4, std::vector<std::uint8_t>(96, 9),
                           {.color_type = PNG_COLOR_TYPE_RGB_ALPHA, .bit_depth = 16})},
       .mutate =
           [](Mutator& mutator, const Corpus& corpus) {
             const std::string changed = mutator.bytes(corpus);
             return mutator.one_in(8) ? changed : with_chunk_checksums(changed);
           },
       .parse = decode,
       .fixed_bytes = 32 << 20});
}

TEST(Fuzz, JpegFiles) {
  const auto pixels = smooth_pixels(20, 17);
  run({.share = 10,
       .corpus = {jpeg_file(20, 17, pixels, {.quality = 50}),
                  jpeg_file(20, 17, pixels, {.quality = 50, .progressive = true}),
                  jpeg_file(17, 20, pixels, {.color_space = JCS_GRAYSCALE, .components = 1}),
                  jpeg_file(15, 17, pixels, {.color_space = JCS_CMYK, .components = 4})},
       .mutate = [](Mutator& mutator, const Corpus& corpus) { return mutator.bytes(corpus); },
       .parse = decode,
       .fixed_bytes = 32 << 20});
}

/// Gathers all samples of a dataset.
void gather(const trainer::Dataset& data) {
  std::vector<std::uint32_t> all;
  for (std::int64_t i = 0; i < data.size(); ++i) all.push_back(static_cast<std::uint32_t>(i));
  trainer::Batch<float> batch;
  data.gather(all, batch);
  EXPECT_EQ(batch.inputs.size(), data.size() * trainer::elements(data.shape()));
  EXPECT_EQ(static_cast<std::int64_t>(batch.labels.size()),
            data.classes() > 0 ? data.size() * data.labels_per_sample() : 0);
  for (const std::int32_t label : batch.labels) EXPECT_TRUE(label >= 0 && label < data.classes()) << label;
}

TEST(Fuzz, NpyFiles) {
  DamagedFile inputs;
  run({.share = 10,
       .corpus = {npy_array<float>("<f4", "(3, 2)", {1, 2, 3, 4, 5, 6}), npy_array<double>("<f8", "(2,)", {1, 2}, 2),
                  npy_array<std::uint8_t>("|u1", "(2, 1, 3)", {1, 2, 3, 4, 5, 6}),
                  npy_array<std::int64_t>("<i8", "(2, 2)", {0, 1, 2, 3})},
       .mutate = [](Mutator& mutator, const Corpus& corpus) { return mutator.bytes(corpus); },
       .parse =
           [&](const std::string& input) {
             const auto& file = inputs.write(input);
             const auto data = trainer::memory_mapped_dataset({.inputs = file});
             gather(*data);
             if (data->shape().size() == 1 && input.find("<i") != std::string::npos) {
               gather(*trainer::memory_mapped_dataset({.inputs = file, .labels = file, .classes = 4}));
             }
           }});
}

TEST(Fuzz, CsvFiles) {
  DamagedFile table;
  run({.share = 10,
       .corpus = {"a,b,label\n1,2,x\n-3.5,4e2,\"y \"\"z\"\"\"\r\n5,6,x\n", "a, \"b\" ,label\n\n1,2,3\n1,2,0",
                  "label,a\n17,0.25\n"},
       .mutate = [](Mutator& mutator, const Corpus& corpus) { return mutator.bytes(corpus); },
       .parse =
           [&](const std::string& input) { gather(*trainer::csv_dataset(table.write(input), {.label = "label"})); }});
}

}  // namespace
}  // namespace farandole::fuzz
