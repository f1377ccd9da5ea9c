#include "groups.h"

#include <cstdlib>
#include <optional>

namespace farandole::test {
namespace {

/// One World per process, and its communicator, from which each test gets a duplicate.
struct Joined {
  World world;
  Communicator communicator = Communicator::of_world(world);
};

std::optional<Joined>& joined() {
  static std::optional<Joined> instance;
  return instance;
}

}  // namespace

bool is_launched() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMI_SIZE") != nullptr;
}

void WorldEnvironment::SetUp() {
  if (is_launched()) joined().emplace();
}

void WorldEnvironment::TearDown() { joined().reset(); }

void for_each_group(const std::vector<int>& sizes, const std::function<void(Communicator&)>& body) {
  if (joined()) {
    Communicator communicator = joined()->communicator.duplicate();
    body(communicator);
    return;
  }
  for (const int size : sizes) {
    SCOPED_TRACE(size);
    run_replicas(size, body);
  }
}

const std::vector<int>& conformance_sizes() {
  static const std::vector<int> sizes{1, 2, 3, 4, 5, 7, 8};
  return sizes;
}

}  // namespace farandole::test
