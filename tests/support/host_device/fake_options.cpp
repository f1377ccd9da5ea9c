// SPDX-License-Identifier: Apache-2.0
#include "fake_options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "fake_device.h"

namespace farandole::fake {

namespace {

struct OptionRow {
  Option option;
  const char* name;
  std::int64_t fallback;
};

constexpr std::array kOptionRows{
    // Seed of random delays and choices; 0: a random seed.
    OptionRow{Option::kSeed, "FAKE_DEVICE_SEED", 0},
    // 1: prints the seed.
    OptionRow{Option::kVerbose, "FAKE_DEVICE_VERBOSE", 0},
    // 1: the first misuse ends the process.
    OptionRow{Option::kFatal, "FAKE_DEVICE_FATAL", 1},
    // The longest pause of a stream before an item.
    OptionRow{Option::kDelayMicroseconds, "FAKE_DEVICE_DELAY_US", 100},
    // After this time without progress, a waiting NCCL call prints once what it waits for.
    OptionRow{Option::kStallSeconds, "FAKE_DEVICE_STALL_S", 20},
    // 0: cuInit finds no device. CUDA_VISIBLE_DEVICES, a list of numbers, chooses among them.
    OptionRow{Option::kCount, "FAKE_DEVICE_COUNT", 8},
    // Bytes of each device; K, M and G are binary.
    OptionRow{Option::kMemory, "FAKE_DEVICE_MEMORY", std::int64_t{1} << 30},
    OptionRow{Option::kCapability, "FAKE_DEVICE_CAPABILITY", 90},
    OptionRow{Option::kDriverVersion, "FAKE_DEVICE_DRIVER_VERSION", 13000},
    // 1: freeing memory, and loading a module, waits for all streams of the device, as in CUDA. 0: freeing memory that
    // a
    // stream uses is a misuse.
    OptionRow{Option::kFreeSyncs, "FAKE_DEVICE_FREE_SYNCS", 1},
    // 1: driver calls exclude each other, as in CUDA: while one waits for a device, all threads wait.
    OptionRow{Option::kDriverLock, "FAKE_DEVICE_DRIVER_LOCK", 1},
    // Device that is lost, as by fake_device_lose; -1: none.
    OptionRow{Option::kLost, "FAKE_DEVICE_LOST", -1},
    // The n-th item of all streams together, from 1, hangs; 0: none.
    OptionRow{Option::kStuck, "FAKE_DEVICE_STUCK", 0},
    OptionRow{Option::kNcclVersion, "FAKE_NCCL_VERSION", 22809},
    // Percentage of sends that do not wait for the receive if they fit into the channel.
    OptionRow{Option::kBufferedPercent, "FAKE_NCCL_BUFFERED_PERCENT", 50},
    // 1: ranks of a communicator may share a device.
    OptionRow{Option::kSharedDevice, "FAKE_NCCL_SHARED_DEVICE", 0},
    // 1: ncclCommAbort never returns.
    OptionRow{Option::kAbortHangs, "FAKE_NCCL_ABORT_HANGS", 0},
    // 1: a receive or collective that does not match the peer's waits for ever, as in NCCL, and is reported after
    // FAKE_DEVICE_STALL_S. 0: it is a misuse.
    OptionRow{Option::kMismatchHangs, "FAKE_NCCL_MISMATCH_HANGS", 1},
    // 0: ranks do not notice that a peer's process has ended, as if no connection of NCCL broke.
    OptionRow{Option::kNoticesDeath, "FAKE_NCCL_NOTICES_DEATH", 1},
    OptionRow{Option::kCudnnVersion, "FAKE_CUDNN_VERSION", 91900},
    OptionRow{Option::kCudnnCudaVersion, "FAKE_CUDNN_CUDA_VERSION", 13000},
    // Bytes of workspace that some of cuDNN's algorithms need.
    OptionRow{Option::kCudnnWorkspace, "FAKE_CUDNN_WORKSPACE", std::int64_t{20} << 10},
};
// A text, not a number: calls that fail, as in "cuMemAlloc:3:2,ncclAllReduce:1:6" (see fake_device_inject).
constexpr const char* kInject = "FAKE_DEVICE_INJECT";

std::optional<std::int64_t> parse_number(const char* text) {
  char* end = nullptr;
  std::int64_t number = std::strtoll(text, &end, 10);
  if (end == text) return std::nullopt;
  constexpr std::string_view kUnits = "KMG";
  if (const std::size_t unit = *end == '\0' ? std::string_view::npos : kUnits.find(*end);
      unit != std::string_view::npos) {
    number <<= 10 * (unit + 1);
    ++end;
  }
  return *end == '\0' ? std::optional(number) : std::nullopt;
}

struct OptionValues {
  OptionValues();
  bool set(const char* name, const char* value);
  std::array<std::atomic<std::int64_t>, kOptionRows.size()> numbers{};
};

[[noreturn]] void refuse_option(const char* assignment) {
  std::fprintf(stderr, "fake device: no option '%s'; fake_options.cpp lists names and values\n", assignment);
  std::abort();
}

OptionValues::OptionValues() {
  for (const OptionRow& row : kOptionRows) numbers[static_cast<std::size_t>(row.option)] = row.fallback;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view assignment = *variable;
    constexpr std::array<std::string_view, 3> kPrefixes{"FAKE_DEVICE_", "FAKE_NCCL_", "FAKE_CUDNN_"};
    if (std::ranges::none_of(kPrefixes, [&](auto prefix) { return assignment.starts_with(prefix); })) continue;
    const std::string name(assignment.substr(0, assignment.find('=')));
    if (name != kInject && !set(name.c_str(), std::getenv(name.c_str()))) refuse_option(*variable);
  }
  auto& seed = numbers[static_cast<std::size_t>(Option::kSeed)];
  if (seed == 0) seed = 1 + std::random_device{}() % 1'000'000'000;
  if (numbers[static_cast<std::size_t>(Option::kVerbose)] != 0) {
    std::fprintf(stderr, "fake device: FAKE_DEVICE_SEED=%lld\n", static_cast<long long>(seed));
  }
}

bool OptionValues::set(const char* name, const char* value) {
  const std::optional<std::int64_t> number = parse_number(value);
  for (const OptionRow& row : kOptionRows) {
    if (std::strcmp(row.name, name) != 0 || !number) continue;
    numbers[static_cast<std::size_t>(row.option)].store(*number, std::memory_order_relaxed);
    return true;
  }
  return false;
}

OptionValues& option_values() {
  static auto* const values = new OptionValues;  // streams read it until the process ends
  return *values;
}

}  // namespace

std::int64_t option(Option option) {
  return option_values().numbers[static_cast<std::size_t>(option)].load(std::memory_order_relaxed);
}

bool set_option(const char* name, const char* value) {
  return option_values().set(name, value);
}

std::uint64_t Random::next() {
  state_ += 0x9e3779b97f4a7c15U;
  std::uint64_t bits = state_;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebU;
  return bits ^ (bits >> 31);
}

Random random_of(int device, unsigned serial) {
  Random seed(static_cast<std::uint64_t>(option(Option::kSeed)));
  return Random(seed.next() ^ (static_cast<std::uint64_t>(device) << 32 | serial));
}

}  // namespace farandole::fake

extern "C" int fake_device_set(const char* option, const char* value) {
  return farandole::fake::set_option(option, value) ? 1 : 0;
}
