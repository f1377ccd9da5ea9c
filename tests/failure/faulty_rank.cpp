// A program whose rank 1 misbehaves after a few collectives; expect_fault.sh checks what the others say.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"

namespace {

void misbehave(const std::string& fault) {
  if (fault == "killed") raise(SIGKILL);
  if (fault == "orphans") {
    // A child that lives on for a while.
    if (fork() == 0) {
      sleep(20);
      _exit(0);
    }
    raise(SIGKILL);
  }
  if (fault == "stopped") raise(SIGSTOP);
  if (fault == "exits") _exit(7);
  if (fault == "throws") throw std::runtime_error("no more data");
}

/// Comes, or goes, late: when the file appears, which the test makes once the others have warned.
void wait_for_file(const char* path) {
  while (access(path, F_OK) != 0) usleep(1000);
}

/// Of this process, which has not joined yet.
bool is_started_as_rank_1() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "FARANDOLE_RANK"}) {
    const char* const rank = std::getenv(variable);
    if (rank != nullptr) return std::string(rank) == "1";
  }
  return false;
}

void run(const std::string& fault, const char* signal_file) {
  if (is_started_as_rank_1()) {
    if (fault == "joins_late") wait_for_file(signal_file);
    if (fault == "absent") sleep(20);
  }
  farandole::World world;
  farandole::Communicator ranks = farandole::Communicator::of_world(world);
  std::vector<float> data(1000, 1.0F);
  for (int i = 0; i < 10; ++i) ranks.allreduce(data, farandole::ReduceOp::kMax);
  if (ranks.rank() == 1) {
    misbehave(fault);
    if (fault == "late") wait_for_file(signal_file);
    if (fault == "mismatch") data.resize(500);
  }
  ranks.allreduce(data, farandole::ReduceOp::kSum);
  std::printf("rank %d is done\n", ranks.rank());
  if (ranks.rank() == 1 && fault == "lingers") wait_for_file(signal_file);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string fault = argc > 1 ? argv[1] : "none";
  try {
    run(fault, argc > 2 ? argv[2] : "");
  } catch (const farandole::Error& error) {
    std::fprintf(stderr, "%s: %s\n", std::string(name(error.kind())).c_str(), error.what());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "exception: %s\n", error.what());
    return 1;
  }
  return 0;
}
