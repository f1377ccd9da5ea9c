// SPDX-License-Identifier: Apache-2.0
// A program whose rank 1 misbehaves after a few collectives. expect_fault.sh checks what the other ranks print, and
// when. usage: farandole_faulty_rank [--messages] FAULT DIRECTORY
// --messages: the other ranks wait for a message of rank 1, not in a collective.
// Files in the directory: each rank writes its process id
// (pid.RANK), and the time at which it has ended its part of the job (ended.RANK). Rank 1 writes the time at which it
// is about to die (died). Ranks wait for the file `come`, which the test makes.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"

namespace {

class Scene {
 public:
  explicit Scene(std::string directory) : directory_(std::move(directory)) {}

  void write_pid(const std::string& rank) const { write("pid." + rank, std::to_string(getpid())); }
  /// Seconds since 1970, as the shell's EPOCHREALTIME.
  void write_time(const std::string& file) const {
    const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
    write(file, std::to_string(now.count()));
  }
  /// Until the test lets this rank go on.
  void wait_for_test() const {
    while (access((directory_ + "/come").c_str(), F_OK) != 0) usleep(1000);
  }

 private:
  // Renamed, so that the test never reads half of it.
  void write(const std::string& file, const std::string& text) const {
    if (directory_.empty()) return;
    const std::string path = directory_ + "/" + file;
    std::ofstream(path + ".new") << text << '\n';
    std::rename((path + ".new").c_str(), path.c_str());
  }
  const std::string directory_;  // empty: the program was started by hand
};

/// Rank of this process according to its launcher; works before the process has joined the job.
std::string rank_of_launcher() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "FARANDOLE_RANK", "RANK"}) {
    const char* const rank = std::getenv(variable);
    if (rank != nullptr) return rank;
  }
  return "0";
}

void crash() {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  signal(SIGSEGV, SIG_DFL);
  raise(SIGSEGV);
}

void die(const std::string& fault) {
  if (fault == "killed") raise(SIGKILL);
  if (fault == "crashes") crash();
  if (fault == "orphans") {
    // A child that lives on for a while.
    if (fork() == 0) {
      sleep(20);
      _exit(0);
    }
    raise(SIGKILL);
  }
  if (fault == "exits") _exit(7);
  if (fault == "exits_with_0") std::exit(0);
  if (fault == "quits_with_0") _exit(0);
}

void misbehave(const std::string& fault, const Scene& scene) {
  scene.write_time("died");
  die(fault);
  if (fault == "stopped") raise(SIGSTOP);
  if (fault == "throws") throw std::runtime_error("no more data");
  if (fault == "late" || fault == "suspended") scene.wait_for_test();
}

void run(const std::string& fault, const Scene& scene, bool waits_for_message) {
  const std::string rank = rank_of_launcher();
  scene.write_pid(rank);
  if (rank == "1" && (fault == "joins_late" || fault == "terminated_joining")) scene.wait_for_test();
  if (rank == "1" && fault == "absent") sleep(20);
  if (rank == "2" && fault == "killed_joining") return scene.wait_for_test();
  farandole::World world;
  farandole::Communicator ranks = farandole::Communicator::of_world(world);
  std::vector<float> data(1000, 1.0F);
  for (int i = 0; i < 10; ++i) ranks.allreduce(data, farandole::ReduceOp::kMax);
  if (ranks.rank() == 1) {
    misbehave(fault, scene);
    if (fault == "mismatch") data.resize(500);
    if (fault == "leaves") return;
  }
  if (waits_for_message && ranks.rank() != 1) ranks.recv(data, /*source=*/1, /*tag=*/3);
  ranks.allreduce(data, farandole::ReduceOp::kSum);
  std::printf("rank %d is done\n", ranks.rank());
  if (ranks.rank() == 1 && fault == "lingers") scene.wait_for_test();
  if (ranks.rank() == 0 && fault == "killed_leaving") scene.wait_for_test();
}

}  // namespace

int main(int argc, char** argv) {
  const bool waits_for_message = argc > 1 && std::string(argv[1]) == "--messages";
  const int first = waits_for_message ? 2 : 1;
  const std::string fault = argc > first ? argv[first] : "none";
  const Scene scene(argc > first + 1 ? argv[first + 1] : "");
  int status = 0;
  try {
    run(fault, scene, waits_for_message);
  } catch (const farandole::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    status = 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "exception: %s\n", error.what());
    status = 1;
  }
  scene.write_time("ended." + rank_of_launcher());
  return status;
}
