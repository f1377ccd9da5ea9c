// SPDX-License-Identifier: Apache-2.0
// Parsers of the trainer's files, fed with slightly damaged files.
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "../trainer/trainer_files.h"
#include "farandole/internal/json_depth.h"
#include "farandole/trainer/checkpoint.h"
#include "fuzz.h"
#include "idx_file.h"
#include "safetensors.h"

namespace farandole::fuzz {
namespace {

using trainer::test::read_bytes;
using trainer::test::TemporaryDirectory;
using trainer::test::write_bytes;

/// Tens of thousands of files are written here: in memory, where there is such a place.
TemporaryDirectory make_directory() {
  if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", /*overwrite=*/1);
  return {};
}

/// A header of IDX, and the data.
std::string idx(const std::vector<std::uint32_t>& extents, std::size_t bytes) {
  std::string file{'\0', '\0', '\x08', static_cast<char>(extents.size())};
  for (const std::uint32_t extent : extents) {
    for (const int shift : {24, 16, 8, 0}) file += static_cast<char>(extent >> shift);
  }
  return file + std::string(bytes, 'x');
}

std::string gzipped(const std::string& text) {
  const TemporaryDirectory directory = make_directory();
  const auto file = directory.path() / "x.gz";
  gzFile output = gzopen(file.c_str(), "wb");
  gzwrite(output, text.data(), static_cast<unsigned>(text.size()));
  gzclose(output);
  return read_bytes(file);
}

TEST(Fuzz, IdxFiles) {
  const TemporaryDirectory directory = make_directory();
  const auto file = directory.path() / "images";
  const std::string images = idx({5, 4, 3}, 60);
  run({.share = 15,
       .corpus = {images, gzipped(images), idx({1, 1, 1}, 1)},
       .mutate = [](Mutator& mutator, const Corpus& corpus) { return mutator.bytes(corpus); },
       .parse =
           [&](const std::string& input) {
             write_bytes(file, input);
             const trainer::IdxArray array = trainer::read_idx_file(file, 3);
             ASSERT_EQ(array.extents.size(), 3U);
             std::size_t product = 1;
             for (const std::int64_t extent : array.extents) product *= static_cast<std::size_t>(extent);
             EXPECT_EQ(array.bytes.size(), product);
           },
       .fixed_bytes = 8 << 20});
}

TEST(Fuzz, SafetensorsFiles) {
  const TemporaryDirectory directory = make_directory();
  const auto file = directory.path() / "x.safetensors";
  std::vector<float> floats{1, 2, 3, 4, 5, 6.5F}, none;
  std::vector<double> doubles{-1.25, 1e300};
  write_safetensors(file, std::vector<trainer::CheckpointTensor>{
                              {"layer.weight", {2, 3}, floats}, {"layer.bias", {2}, doubles}, {"none", {0}, none}});
  const std::string valid = read_bytes(file);
  std::filesystem::remove(file);
  std::uint64_t header_bytes = 0;
  std::copy_n(valid.data(), sizeof header_bytes, reinterpret_cast<char*>(&header_bytes));
  const std::string header = valid.substr(sizeof header_bytes, header_bytes);
  const std::string data = valid.substr(sizeof header_bytes + header_bytes);
  run({.share = 15,
       .corpus = {valid},
       .mutate =
           [&](Mutator& mutator, const Corpus& corpus) {
             if (mutator.one_in(2)) return mutator.bytes(corpus);
             const std::string changed = mutator.json({header});
             const std::uint64_t length = changed.size();
             return std::string(reinterpret_cast<const char*>(&length), sizeof length) + changed + data;
           },
       .parse =
           [&](const std::string& input) {
             write_bytes(file, input);
             const trainer::SafetensorsFile content(file);
             std::size_t bytes = 0;
             for (const auto& entry : content.entries()) {
               std::size_t product = size_in_bytes(entry.dtype);
               for (const std::int64_t extent : entry.shape) product *= static_cast<std::size_t>(extent);
               EXPECT_EQ(entry.bytes.size(), product);
               EXPECT_EQ(content.find(entry.name), &entry);
               bytes +=
                   static_cast<std::size_t>(std::count(entry.bytes.begin(), entry.bytes.end(), std::byte{0}) + product);
             }
             EXPECT_LE(bytes, 2 * input.size());
           }});
}

/// With the checksum that belongs to it, so that a change goes further than to it.
std::string with_checksum(const std::string& text) {
  using Document = nlohmann::ordered_json;
  Document manifest = Document::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object() || !manifest.contains("manifest_crc32")) return text;
  manifest.erase("manifest_crc32");
  const std::string body = manifest.dump(-1, ' ', false, Document::error_handler_t::replace);
  const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(body.data()), body.size());
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08lx", crc);
  manifest["manifest_crc32"] = digits;
  return manifest.dump(-1, ' ', false, Document::error_handler_t::replace);
}

TEST(Fuzz, Manifests) {
  const TemporaryDirectory directory = make_directory();
  trainer::CheckpointStore store(directory.path(), 1);
  store.prepare();
  std::vector<float> weight(12), momentum(12);
  const std::vector<trainer::CheckpointTensor> model{{"weight", {3, 4}, weight}};
  const std::vector<trainer::CheckpointTensor> optimizer{{"weight.momentum", {3, 4}, momentum}};
  const std::vector<std::pair<std::string, std::string>> options{{"seed", "1"}, {"global batch", "128"}};
  store.save({.training_step = 7,
              .epoch = 1,
              .position = 256,
              .loss_sum = 0.5,
              .metrics = {{"accuracy", {77, 256}}},
              .options = options,
              .model = trainer::ModelDescription{.input = {3}, .output = {4}, .layers = {"dense"}, .parameters = 12}},
             model, optimizer);
  const auto checkpoint = store.latest().value();
  const auto file = checkpoint / "manifest.json";
  const std::string valid = read_bytes(file);
  run({.share = 15,
       .corpus = {valid},
       .mutate =
           [](Mutator& mutator, const Corpus& corpus) {
             const std::string changed = mutator.json(corpus);
             return mutator.one_in(8) || json_depth(changed) > 100 ? changed : with_checksum(changed);
           },
       .parse =
           [&](const std::string& input) {
             write_bytes(file, input);
             const trainer::CheckpointState state = store.load(checkpoint, options, model, optimizer);
             EXPECT_GE(std::min({state.training_step, state.epoch, state.position}), 0);
           }});
}

}  // namespace
}  // namespace farandole::fuzz
