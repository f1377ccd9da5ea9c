// SPDX-License-Identifier: Apache-2.0
#include "fuzz.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <random>

#include "farandole/core/error.h"
#include "memory.h"

// Defined by the sanitizers, which chose the name; null in builds without sanitizers.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace farandole::fuzz {
namespace {

/// Documents of many small values take this many times the bytes of their text.
constexpr std::size_t kBytesPerByte = 256;

std::uint64_t variable(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// For who reads a sanitizer's report.
struct Running {
  std::string target;
  std::uint64_t seed = 0;
  std::size_t number = 0;
  const std::string* input = nullptr;
} running;

/// The first bytes of an input, readable.
std::string shown(const std::string& input) {
  constexpr std::size_t kShown = 400;
  std::string text = fmt::format("{} bytes: ", input.size());
  for (const char byte : input.substr(0, kShown)) {
    const auto code = static_cast<unsigned char>(byte);
    text += code >= 0x20 && code < 0x7f ? std::string(1, byte) : fmt::format("\\x{:02x}", code);
  }
  return text;
}

std::string describe_running() {
  return fmt::format("{}: input {} of FARANDOLE_SEED={}, {}", running.target, running.number, running.seed,
                     shown(*running.input));
}

/// True if it is understood. Anything but that and an Error fails the test.
bool is_understood(const Target& target, const std::string& input) {
  const PeakMemory memory;
  bool understood = false;
  try {
    target.parse(input);
    understood = true;
  } catch (const Error& error) {
    EXPECT_NE(error.what(), std::string());
  } catch (const std::exception& error) {
    ADD_FAILURE() << "an exception that is no farandole::Error: " << error.what();
  }
  EXPECT_LE(memory.bytes(), target.fixed_bytes + kBytesPerByte * input.size());
  return understood;
}

}  // namespace

void run(const Target& target) {
  static const std::uint64_t seed = variable("FARANDOLE_SEED", std::random_device{}());
  const std::size_t inputs = variable("FARANDOLE_FUZZ_INPUTS", 100'000) * target.share / 100;
  const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
  fmt::print("seed {}, {} inputs\n", seed, inputs);
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback([] { std::fputs((describe_running() + "\n").c_str(), stderr); });
  }
  running = {name, seed};
  for (const std::string& valid : target.corpus) {
    running.input = &valid;
    EXPECT_TRUE(is_understood(target, valid)) << shown(valid);
  }

  Mutator mutator(seed ^ std::hash<std::string>()(name));
  std::size_t understood = 0;
  for (std::size_t i = 0; i < inputs && !testing::Test::HasFailure(); ++i) {
    const std::string input = target.mutate(mutator, target.corpus);
    running.number = i;
    running.input = &input;
    understood += is_understood(target, input) ? 1 : 0;
    if (testing::Test::HasFailure()) ADD_FAILURE() << describe_running();
  }
  if (testing::Test::HasFailure()) return;
  EXPECT_GT(understood, inputs / 100) << "nearly nothing is understood: the changes are too coarse";
  EXPECT_LT(understood, inputs - inputs / 100) << "nearly everything is understood: the changes are too fine";
}

}  // namespace farandole::fuzz
