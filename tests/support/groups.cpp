// SPDX-License-Identifier: Apache-2.0
#include "groups.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include "farandole/internal/communicator_access.h"

namespace farandole::test {
namespace {

std::optional<World>& joined() {
  static std::optional<World> world;
  return world;
}

}  // namespace

bool is_launched() {
  constexpr std::array kSizes{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "FARANDOLE_SIZE", "WORLD_SIZE"};
  return std::any_of(kSizes.begin(), kSizes.end(), [](const char* name) { return std::getenv(name) != nullptr; });
}

void WorldEnvironment::SetUp() {
  if (!is_launched()) return;
  WorldOptions options;
  options.replicas = replicas_;
  joined().emplace(options);
}

void WorldEnvironment::TearDown() {
  joined().reset();
}

void for_each_group(const std::vector<int>& sizes, const std::function<void(Communicator&)>& body) {
  if (joined()) {
    run_replicas(*joined(), body);
    return;
  }
  for (const int size : sizes) {
    SCOPED_TRACE(size);
    run_replicas(size, body);
  }
}

std::vector<std::string> algorithm_names(Collective collective, const Communicator& ranks) {
  std::vector<std::string> names;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective == collective && algorithm.supports(ranks.size())) names.emplace_back(algorithm.name);
  }
  // Over messages, "auto" selects different methods for short and for long vectors.
  names.emplace_back(ranks.shares_memory() ? "shared_memory" : "auto");
  if (internals(ranks).choose(Collective::kAllreduce, 1 << 20) == "hierarchical") names.emplace_back("hierarchical");
  if (collective == Collective::kAllreduce && internals(ranks).transport() == "mpi") names.emplace_back("vendor");
  return names;
}

const std::vector<int>& conformance_sizes() {
  static const std::vector<int> sizes{1, 2, 3, 4, 5, 7, 8};
  return sizes;
}

}  // namespace farandole::test
