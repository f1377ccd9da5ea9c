// SPDX-License-Identifier: Apache-2.0
// run_replicas: runs each rank as a thread.
#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/internal/endpoint.h"
#include "farandole/internal/forked_children.h"
#include "farandole/internal/log.h"

namespace farandole {
namespace {

/// Text of the exception that is being handled.
std::string describe_current_exception() {
  try {
    throw;
  } catch (const std::exception& error) {
    return message_of(error);
  } catch (...) {
    return "an exception of an unknown type";
  }
}

/// Threads of all replicas but the first replica, which runs on the caller's thread. The destructor joins the threads,
/// except in a child process that the first replica has forked, where these threads do not exist.
struct ReplicaThreads {
  explicit ReplicaThreads(const Endpoint& first) : first_endpoint(first) {}
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;
  ~ReplicaThreads() {
    if (first_endpoint.faults().is_forked_child()) keep_until_the_end(std::move(threads));
  }
  const Endpoint& first_endpoint;
  std::vector<std::jthread> threads;
};

/// Ends a child process that was forked from a replica's thread and has thrown an exception. That thread is the child's
/// only thread, so no caller is left to catch the exception.
[[noreturn]] void end_child(const Endpoint& endpoint) {
  log(LogLevel::kError, fmt::format("a process that was forked from {} ends with an exception: {}",
                                    endpoint.topology().describe(endpoint.rank()), describe_current_exception()));
  std::_Exit(EXIT_FAILURE);
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
        if (endpoint.faults().is_forked_child()) throw;
        // Give up before the communicator's destructor runs, because the destructor waits for pending collectives.
        remember(std::current_exception());
        endpoint.faults().give_up("failed: " + describe_current_exception());
      }
    } catch (...) {
      if (endpoint.faults().is_forked_child()) throw;
      remember(std::current_exception());
    }
    endpoint.late_ranks().set_has_left(true);
  };
  const auto run_thread = [&](int replica) {
    Endpoint& endpoint = world.endpoint(replica);
    try {
      run_one(replica);
    } catch (...) {
      end_child(endpoint);
    }
  };
  for (int replica = 0; replica < world.replicas(); ++replica) world.endpoint(replica).late_ranks().set_has_left(false);
  {
    Endpoint& endpoint = world.endpoint(0);
    ReplicaThreads others(endpoint);
    try {
      for (int replica = 1; replica < world.replicas(); ++replica) others.threads.emplace_back(run_thread, replica);
      run_one(0);
    } catch (...) {
      if (endpoint.faults().is_forked_child()) throw;
      // Poison the job: the replicas that run already would wait for the replicas that could not start.
      remember(std::current_exception());
      endpoint.faults().give_up(fmt::format("could start only {} of {} replicas: {}", others.threads.size() + 1,
                                            world.replicas(), describe_current_exception()));
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
