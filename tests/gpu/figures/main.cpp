// SPDX-License-Identifier: Apache-2.0
// Measures a GPU's memory, its driver and NCCL. Rank 0 prints JSON; tests/gpu/run.py reads it and compares the figures
// with the targets.
#include <fmt/core.h>

#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/core/world.h"
#include "figures.h"

namespace farandole::figures {
namespace {

constexpr std::string_view kUsage =
    "usage: farandole_gpu_figures memory BYTES SAMPLES   copies, reductions and packing of vectors of so many bytes\n"
    "       farandole_gpu_figures driver SAMPLES         single calls of the driver\n"
    "       farandole_gpu_figures enqueue SAMPLES        as each rank of a job: calls that enqueue, beside NCCL's own\n"
    "       farandole_gpu_figures bring_up farandole|nccl  as each rank of a job: seconds to the first allreduce's "
    "end\n";

/// Thrown for wrong arguments.
struct Usage {};

std::size_t number(const std::string& text) {
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text.c_str(), &end, 10);
  if (end == text.c_str() || *end != '\0' || value == 0) throw Usage();
  return value;
}

/// Returns the JSON that rank 0 prints. Collective.
std::string measure(Communicator& ranks, std::span<const std::string> arguments) {
  const std::string& what = arguments[0];
  if (what == "memory" && arguments.size() == 3) {
    nlohmann::json figures = measure_memory(ranks, number(arguments[1]), static_cast<int>(number(arguments[2])));
    return figures.dump(1);
  }
  if (what == "driver" && arguments.size() == 2) {
    return measure_driver(ranks, static_cast<int>(number(arguments[1]))).dump(1);
  }
  if (what == "enqueue" && arguments.size() == 2) {
    return measure_enqueue(ranks, static_cast<int>(number(arguments[1]))).dump(1);
  }
  if (what == "bring_up" && arguments.size() == 2) {
    if (arguments[1] == "farandole") return fmt::format("{:.6f}", bring_up_farandole(ranks));
    if (arguments[1] == "nccl") return fmt::format("{:.6f}", bring_up_nccl(ranks));
  }
  throw Usage();
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) throw Usage();
  World world;
  Communicator ranks = Communicator::of_world(world);
  const std::string figures = measure(ranks, arguments);
  if (ranks.rank() == 0) fmt::print("{}\n", figures);
  return 0;
}

}  // namespace
}  // namespace farandole::figures

int main(int argc, char** argv) {
  try {
    return farandole::figures::run({argv + 1, argv + argc});
  } catch (const farandole::figures::Usage&) {
    fmt::print(stderr, "{}", farandole::figures::kUsage);
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "farandole_gpu_figures: {}\n", error.what());
    return 1;
  }
}
