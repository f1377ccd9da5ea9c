// run_replicas: ranks as threads.
#include <fmt/format.h>

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"

namespace farandole {
namespace {

/// The text of the exception that is being handled.
std::string text_of_current() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of an unknown type";
  }
}

}  // namespace

void run_replicas(World& world, const std::function<void(Communicator&)>& body) {
  std::mutex mutex;
  std::exception_ptr first;  // guarded by mutex
  const auto remember = [&](const std::exception_ptr& error) {
    const std::lock_guard lock(mutex);
    if (!first) first = error;
  };
  const auto run_one = [&](int replica) {
    Endpoint& endpoint = world.endpoint(replica);
    try {
      Communicator communicator = Communicator::of_world(world, replica);
      try {
        body(communicator);
      } catch (...) {
        // Before the communicator goes: its destructor waits for what is pending.
        remember(std::current_exception());
        endpoint.poison(ErrorKind::kPeerLost,
                        endpoint.topology().describe(endpoint.rank()) + " failed: " + text_of_current());
      }
    } catch (...) {
      remember(std::current_exception());
    }
    endpoint.set_left(true);
  };
  for (int replica = 0; replica < world.replicas(); ++replica) world.endpoint(replica).set_left(false);
  {
    std::vector<std::jthread> threads;
    try {
      for (int replica = 1; replica < world.replicas(); ++replica) threads.emplace_back(run_one, replica);
      run_one(0);
    } catch (...) {
      // Those that run already would wait for those that never come.
      remember(std::current_exception());
      Endpoint& endpoint = world.endpoint(0);
      endpoint.poison(ErrorKind::kPeerLost, fmt::format("{} could start only {} of {} replicas: {}",
                                                        endpoint.topology().describe(endpoint.rank()),
                                                        threads.size() + 1, world.replicas(), text_of_current()));
    }
  }
  if (first) std::rethrow_exception(first);
}

void run_replicas(int replicas, const std::function<void(Communicator&)>& body) {
  WorldOptions options;
  options.replicas = replicas;
  options.alone = true;
  World world(options);
  run_replicas(world, body);
}

}  // namespace farandole
