// SPDX-License-Identifier: Apache-2.0
// A program that waits for its signals by sigwait, as daemons and servers do: the library's threads must not take them.
// usage: waiting_rank world|engine
//   world   with asynchronous collectives, which start the progress thread
//   engine  with the engine, and with its timeline if FARANDOLE_TIMELINE is set
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/engine.h"

namespace {

namespace fs = std::filesystem;

const std::set<int> kOwnMistakes{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};

/// Each thread of this process but the caller's: its name, and a bit for each signal that it blocks.
struct OtherThread {
  std::string name;
  std::uint64_t blocked = 0;
  bool blocks(int signal) const { return (blocked >> (signal - 1) & 1) != 0; }
};

std::vector<OtherThread> other_threads() {
  const std::string own = std::to_string(syscall(SYS_gettid));
  std::vector<OtherThread> threads;
  for (const fs::directory_entry& task : fs::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == own) continue;
    OtherThread thread;
    std::ifstream status(task.path() / "status");
    for (std::string word; status >> word;) {
      if (word == "Name:") status >> thread.name;
      if (word == "SigBlk:") status >> std::hex >> thread.blocked;
    }
    if (!thread.name.empty()) threads.push_back(thread);  // else it has ended
  }
  return threads;
}

std::string described(const OtherThread& thread, int signal) {
  return "thread " + thread.name + (thread.blocks(signal) ? " blocks " : " does not block ") + std::to_string(signal) +
         " (" + strsignal(signal) + ")";
}

/// Describes a signal that the thread wrongly blocks; empty if there is none. Every thread blocks such signals for a
/// moment when it begins and ends.
std::string excess_of(const OtherThread& thread) {
  for (const int signal : kOwnMistakes) {
    if (thread.blocks(signal)) return described(thread, signal);
  }
  return {};
}

std::string lack_of(const OtherThread& thread) {
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    if (signal == SIGKILL || signal == SIGSTOP || (signal > SIGSYS && signal < SIGRTMIN)) continue;
    if (!kOwnMistakes.contains(signal) && !thread.blocks(signal)) return described(thread, signal);
  }
  return {};
}

/// @param expected  at least so many threads, so that the check sees what it is for
void check_masks(std::size_t expected) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::string excess;
  do {
    const std::vector<OtherThread> threads = other_threads();
    excess = threads.size() < expected ? std::to_string(threads.size()) + " other threads" : "";
    for (const OtherThread& thread : threads) {
      if (const std::string lack = lack_of(thread); !lack.empty()) throw std::runtime_error(lack);
      if (excess.empty()) excess = excess_of(thread);
    }
    if (excess.empty()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  } while (std::chrono::steady_clock::now() < deadline);
  throw std::runtime_error(excess);
}

void check_own_mask() {
  sigset_t own;
  pthread_sigmask(SIG_BLOCK, nullptr, &own);
  if (sigisemptyset(&own) == 0) throw std::runtime_error("the program's thread blocks signals that it has not blocked");
}

/// Sends this process a signal, and gets it as the program wants.
void wait_for_signals() {
  sigset_t awaited;
  sigemptyset(&awaited);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGALRM}) sigaddset(&awaited, signal);
  pthread_sigmask(SIG_BLOCK, &awaited, nullptr);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGALRM}) {
    kill(getpid(), signal);
    const timespec limit{20, 0};
    if (const int came = sigtimedwait(&awaited, nullptr, &limit); came != signal) {
      throw std::runtime_error("waited for signal " + std::to_string(signal) + ", got " + std::to_string(came));
    }
  }
}

void run_world() {
  farandole::World world;
  farandole::Communicator ranks = farandole::Communicator::of_world(world);
  std::vector<float> data(100'000, 1.0F);
  for (int call = 0; call < 5; ++call) ranks.allreduce_async(data, farandole::ReduceOp::kMax).wait();
  ranks.barrier();
  check_masks(ranks.size() > 1 ? 1 : 0);
  check_own_mask();
  wait_for_signals();
  ranks.barrier();
}

void check(int status, farandole_error* error) {
  if (status != 0) throw std::runtime_error(farandole_error_text(error));
}

void run_engine() {
  farandole_error* error = nullptr;
  check(farandole_init(nullptr, &error), error);
  farandole_place place{};
  place.struct_bytes = sizeof place;
  farandole_get_place(&place);
  const bool has_timeline = place.rank == 0 && std::getenv("FARANDOLE_TIMELINE") != nullptr;
  check_masks(has_timeline ? 2 : 1);
  check_own_mask();
  wait_for_signals();
  check(farandole_shutdown(&error), error);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    argc > 1 && std::string(argv[1]) == "engine" ? run_engine() : run_world();
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "FAIL: %s\n", problem.what());
    return 1;
  }
  std::puts("every signal came to the thread that waits for it");
  return 0;
}
