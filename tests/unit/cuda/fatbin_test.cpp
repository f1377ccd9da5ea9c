// SPDX-License-Identifier: Apache-2.0
// Checks that the library contains every kernel, compiled for every supported GPU.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cuda/kernel_image.h"
#include "cuda/kernel_list.h"
#include "cuda/kernels_fatbin.h"

namespace farandole::cuda {
namespace {

template <class T>
T number_at(const unsigned char* bytes) {
  T number;
  std::memcpy(&number, bytes, sizeof number);
  return number;
}

/// "sm_90", "compute_90", …: a fatbin is a header and an entry for each architecture, each with its own size in front.
std::multiset<std::string> architectures(const unsigned char* fatbin, std::size_t size) {
  constexpr std::uint32_t kMagic = 0xba55ed50;
  constexpr std::uint16_t kPtx = 1;
  if (size < 16 || number_at<std::uint32_t>(fatbin) != kMagic) return {"no fatbin"};
  std::multiset<std::string> found;
  std::size_t at = number_at<std::uint16_t>(fatbin + 6);
  const std::size_t end = at + number_at<std::uint64_t>(fatbin + 8);
  if (end > size) return {"cut off"};
  while (at < end) {
    const unsigned char* entry = fatbin + at;
    found.insert((number_at<std::uint16_t>(entry) == kPtx ? "compute_" : "sm_") +
                 std::to_string(number_at<std::uint32_t>(entry + 28)));
    at += number_at<std::uint32_t>(entry + 4) + number_at<std::uint64_t>(entry + 8);
  }
  return found;
}

/// "sm_75", …: what this build compiles for, without the kinds of Blackwell that the toolkit does not know.
std::multiset<std::string> binaries(int toolkit) {
  std::istringstream configured(FARANDOLE_ARCHITECTURES);
  std::multiset<std::string> known;
  for (int architecture = 0; configured >> architecture;) {
    const int needed = architecture >= 100 ? 12080 : 12000;
    if (toolkit >= needed) known.insert("sm_" + std::to_string(architecture));
  }
  return known;
}
constexpr std::size_t kMaxBytes = 1536 * 1024;

void check_fatbin(const unsigned char* fatbin, std::size_t size, int toolkit) {
  std::multiset<std::string> expected = binaries(toolkit);
  expected.insert("compute_90");
  EXPECT_EQ(architectures(fatbin, size), expected);
  EXPECT_LE(size, kMaxBytes);
}

TEST(Fatbin, HoldsEveryArchitecture) {
  if (farandole_kernels_fatbin_size == 0) GTEST_SKIP() << "built without nvcc";
  check_fatbin(farandole_kernels_fatbin, farandole_kernels_fatbin_size, farandole_kernels_fatbin_toolkit);
}

TEST(Fatbin, HoldsEveryArchitectureForOlderDrivers) {
  if (farandole_kernels_fatbin_cuda12_size == 0) GTEST_SKIP() << "built without FARANDOLE_CUDA12_NVCC";
  EXPECT_EQ(farandole_kernels_fatbin_cuda12_toolkit / 1000, 12);
  check_fatbin(farandole_kernels_fatbin_cuda12, farandole_kernels_fatbin_cuda12_size,
               farandole_kernels_fatbin_cuda12_toolkit);
}

TEST(Fatbin, NvccHasCompiledEveryKernelForEveryArchitecture) {
  std::istringstream logs(FARANDOLE_FATBIN_LOGS);
  std::string path;
  if (logs.str().empty()) GTEST_SKIP() << "built without nvcc";
  while (std::getline(logs, path, ';')) {
    std::ifstream file(path);
    const std::string log{std::istreambuf_iterator<char>(file), {}};
    for (const std::string& architecture : binaries(/*toolkit=*/12000)) {
      const auto check_kernel = [&](const std::string& name) {
        EXPECT_NE(log.find("Compiling entry function 'farandole_" + name + "' for '" + architecture + "'"),
                  std::string::npos)
            << name << " in " << path;
      };
#define FARANDOLE_KERNEL(name, ...) check_kernel(#name);
      FARANDOLE_KERNELS(FARANDOLE_KERNEL)
#undef FARANDOLE_KERNEL
      if (path.ends_with("cuda12.fatbin.log") || farandole_kernels_fatbin_toolkit < kOldestLargeToolkit) continue;
      for (std::size_t variant = 1; variant < kCapacities.size(); ++variant) {
#define FARANDOLE_KERNEL(name, ...) check_kernel(#name "_x" + std::to_string(kCapacities[variant]));
        FARANDOLE_PACKING_KERNELS(FARANDOLE_KERNEL)
#undef FARANDOLE_KERNEL
      }
    }
  }
}

}  // namespace
}  // namespace farandole::cuda
