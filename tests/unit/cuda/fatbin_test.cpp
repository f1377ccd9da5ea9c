// SPDX-License-Identifier: Apache-2.0
// The kernels for GPUs were compiled for every GPU under every name, and lie in the library.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

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

/// Of Blackwell as much as the toolkit has.
std::multiset<std::string> architectures_of(int toolkit) {
  std::multiset<std::string> all{"compute_90", "sm_75", "sm_80", "sm_90"};
  if (toolkit >= 12080) all.insert({"sm_100", "sm_120"});
  if (toolkit >= 12090) all.insert("sm_103");
  return all;
}
constexpr std::size_t kMaxBytes = 1536 * 1024;

void check_fatbin(const unsigned char* fatbin, std::size_t size, int toolkit) {
  EXPECT_EQ(architectures(fatbin, size), architectures_of(toolkit));
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
    for (const char* architecture : {"sm_75", "sm_80", "sm_90"}) {
#define FARANDOLE_KERNEL(name, ...)                                                                             \
  EXPECT_NE(log.find("Compiling entry function 'farandole_" #name "' for '" + std::string(architecture) + "'"), \
            std::string::npos)                                                                                  \
      << path;
      FARANDOLE_KERNELS(FARANDOLE_KERNEL)
#undef FARANDOLE_KERNEL
    }
  }
}

}  // namespace
}  // namespace farandole::cuda
