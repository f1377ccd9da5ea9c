// SPDX-License-Identifier: Apache-2.0
// run_replicas: runs each rank as a thread.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/internal/endpoint.h"
#include "farandole/internal/forked_children.h"
#include "farandole/internal/log.h"

namespace farandole {
namespace {

/// Calls describe(error) with the exception that is being handled, and returns its result.
template <class Describe>
std::string describe_current_exception(const Describe& describe) {
  try {
    throw;
  } catch (const std::exception& error) {
    return describe(error);
  } catch (...) {
    return "an exception of an unknown type";
  }
}

/// Text of the exception that is being handled, without the kind.
std::string text_of_current_exception() {
  return describe_current_exception([](const std::exception& error) { return message_of(error); });
}

/// Which replicas have ended, and with which exceptions. Thread-safe.
class ReplicaEnds {
 public:
  explicit ReplicaEnds(World& world) : world_(world), replicas_(static_cast<std::size_t>(world.replicas())) {}

  /// Keeps the current exception of a replica. A replica's first exception counts.
  void fail(int replica) {
    const std::lock_guard lock(mutex_);
    if (at(replica).error) return;
    at(replica).error = std::current_exception();
    if (!first_) first_ = replica;
  }
  /// Notes that a replica has ended, or could not be started. If it has failed, waits up to a second until all replicas
  /// have ended, and then logs which replicas have not: `run_replicas` may wait for them forever. Only the first
  /// replica that fails and waits in vain logs.
  void end(int replica) noexcept;
  /// The exception that caused the other ones; null if no replica has failed.
  std::exception_ptr cause() const {
    const std::lock_guard lock(mutex_);
    const std::optional<int> failed = failed_first();
    return failed ? at(*failed).error : nullptr;
  }

 private:
  struct Replica {
    bool has_ended = false;
    std::exception_ptr error;
  };

  Replica& at(int replica) { return replicas_[static_cast<std::size_t>(replica)]; }
  const Replica& at(int replica) const { return replicas_[static_cast<std::size_t>(replica)]; }
  /// The replica whose exception caused the other ones: the rank that found the job's fault. This rank may tell its
  /// peers before its exception has left its program, so their exceptions may have come here earlier.
  std::optional<int> failed_first() const;
  std::string describe_running() const;

  World& world_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable ended_;
  std::vector<Replica> replicas_;
  std::optional<int> first_;  // the replica whose exception came first
  bool has_logged_ = false;
};

std::optional<int> ReplicaEnds::failed_first() const {
  const std::optional<int> finder = world_.endpoint(0).faults().finder();
  if (!finder) return first_;
  for (int replica = 0; replica < world_.replicas(); ++replica) {
    if (world_.endpoint(replica).rank() == *finder && at(replica).error) return replica;
  }
  return first_;
}

std::string ReplicaEnds::describe_running() const {
  std::vector<std::string> names;
  for (int replica = 0; replica < world_.replicas(); ++replica) {
    const Endpoint& endpoint = world_.endpoint(replica);
    if (!at(replica).has_ended) names.push_back(endpoint.topology().describe(endpoint.rank()));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void ReplicaEnds::end(int replica) noexcept try {
  constexpr std::chrono::seconds kUsualEnd{1};  // for which nothing is logged
  const auto have_all_ended = [this] {
    return std::all_of(replicas_.begin(), replicas_.end(), [](const Replica& each) { return each.has_ended; });
  };
  std::unique_lock lock(mutex_);
  at(replica).has_ended = true;
  ended_.notify_all();
  if (!at(replica).error || ended_.wait_for(lock, kUsualEnd, have_all_ended)) return;
  if (std::exchange(has_logged_, true)) return;
  const int failed = *failed_first();
  const Endpoint& endpoint = world_.endpoint(failed);
  std::string error;
  try {
    std::rethrow_exception(at(failed).error);
  } catch (...) {
    error = describe_current_exception([](const std::exception& thrown) { return thrown.what(); });
  }
  const std::string running = describe_running();
  lock.unlock();
  log(LogLevel::kError,
      fmt::format("{} has ended with an error, which run_replicas throws once the threads of all replicas have ended. "
                  "Still running, and waited for: {}. The error: {}",
                  endpoint.topology().describe(endpoint.rank()), running, error));
} catch (const std::exception&) {
  // The line is best effort: `cause` still has the error.
}

/// Threads of all replicas but the first replica, which runs on the caller's thread. The destructor joins the threads,
/// except in a child process that the first replica has forked, where these threads do not exist.
struct ReplicaThreads {
  ReplicaThreads(const Endpoint& first, std::shared_ptr<ReplicaEnds> of_threads)
      : first_endpoint(first), ends(std::move(of_threads)) {}
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;
  ~ReplicaThreads() {
    if (!first_endpoint.faults().is_forked_child()) return;
    keep_until_the_end(std::move(threads));
    keep_until_the_end(std::move(ends));
  }
  const Endpoint& first_endpoint;
  std::shared_ptr<ReplicaEnds> ends;  // the threads may have waited in it at the fork
  std::vector<std::jthread> threads;
};

/// Ends a child process that was forked from a replica's thread and has thrown an exception. That thread is the child's
/// only thread, so no caller is left to catch the exception.
[[noreturn]] void end_child(const Endpoint& endpoint) {
  log(LogLevel::kError, fmt::format("a process that was forked from {} ends with an exception: {}",
                                    endpoint.topology().describe(endpoint.rank()), text_of_current_exception()));
  std::_Exit(EXIT_FAILURE);
}

/// Runs `body` as a replica. Throws in a forked child only.
void run_replica(World& world, int replica, const std::function<void(Communicator&)>& body, ReplicaEnds& ends) {
  Endpoint& endpoint = world.endpoint(replica);
  try {
    Communicator communicator = Communicator::of_world(world, replica);
    try {
      body(communicator);
    } catch (...) {
      if (endpoint.faults().is_forked_child()) throw;
      // Give up before the communicator's destructor runs, because the destructor waits for pending collectives.
      ends.fail(replica);
      endpoint.faults().give_up("failed: " + text_of_current_exception());
    }
  } catch (...) {
    if (endpoint.faults().is_forked_child()) throw;
    ends.fail(replica);
  }
  endpoint.late_ranks().set_has_left(true);
  if (!endpoint.faults().is_forked_child()) ends.end(replica);
}

}  // namespace

void run_replicas(World& world, const std::function<void(Communicator&)>& body) {
  const auto ends = std::make_shared<ReplicaEnds>(world);
  const auto run_thread = [&](int replica) {
    const Endpoint& endpoint = world.endpoint(replica);  // before a fork: the World refuses calls in a child
    try {
      run_replica(world, replica, body, *ends);
    } catch (...) {
      end_child(endpoint);
    }
  };
  for (int replica = 0; replica < world.replicas(); ++replica) world.endpoint(replica).late_ranks().set_has_left(false);
  Endpoint& first = world.endpoint(0);
  {
    ReplicaThreads others(first, ends);
    try {
      for (int replica = 1; replica < world.replicas(); ++replica) others.threads.emplace_back(run_thread, replica);
      run_replica(world, 0, body, *ends);
    } catch (...) {
      if (first.faults().is_forked_child()) throw;
      // Poison the job: the replicas that run already would wait for the replicas that could not start.
      ends->fail(0);
      const int started = static_cast<int>(others.threads.size()) + 1;
      first.faults().give_up(fmt::format("could start only {} of {} replicas: {}", started, world.replicas(),
                                         text_of_current_exception()));
      for (int replica = started; replica < world.replicas(); ++replica) ends->end(replica);
      ends->end(0);
    }
  }
  if (first.faults().is_forked_child()) return;
  if (const std::exception_ptr error = ends->cause()) std::rethrow_exception(error);
}

void run_replicas(int replicas, const std::function<void(Communicator&)>& body) {
  WorldOptions options;
  options.replicas = replicas;
  options.alone = true;
  World world(options);
  run_replicas(world, body);
}

}  // namespace farandole
