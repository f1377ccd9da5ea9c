// SPDX-License-Identifier: Apache-2.0
#include "mpi_process_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include "farandole/core/error.h"
#include "mpi_runtime.h"
#include "mpi_vendor.h"

namespace farandole::mpi {
namespace {

/// First message between processes. Size and first member never change, so that different builds understand each other.
struct FirstMessage {
  BuildClaim build;
  std::int32_t thread_level = 0;
  char unused[60] = {};
};
static_assert(sizeof(FirstMessage) == 320);

}  // namespace

MpiProcessGroup::MpiProcessGroup(const Runtime& runtime, const Watch::Times& watch, PartLimits limits)
    : session_(MpiSession::open(runtime)),
      watch_(watch),
      limits_(limits),
      control_messages_(session_),
      transport_(session_, limits.message_bytes),
      thread_levels_(static_cast<std::size_t>(session_.process_count())) {
  session_.set_goodbye([this] { control_messages_.close(); });
  try {
    exchange_builds(runtime.thread_level);
  } catch (...) {
    control_messages_.close();
    session_.close(/*in_good_order=*/false);
    throw;
  }
}

void MpiProcessGroup::exchange_builds(int thread_level) {
  FirstMessage mine;
  mine.build = own_build_claim();
  mine.thread_level = thread_level;
  std::vector<FirstMessage> all(thread_levels_.size());
  gather(&mine, all.data(), sizeof mine);
  std::vector<BuildClaim> builds;
  for (const FirstMessage& each : all) builds.push_back(each.build);
  check_same_build(builds);
  std::transform(all.begin(), all.end(), thread_levels_.begin(),
                 [](const FirstMessage& each) { return each.thread_level; });
}

MpiProcessGroup::~MpiProcessGroup() {
  control_messages_.close();
  session_.close(/*in_good_order=*/false);
}

// The lowest thread level of all processes holds for all, so that every rank of the job has the same abilities.
ThreadUse MpiProcessGroup::thread_use() const {
  const int lowest = *std::min_element(thread_levels_.begin(), thread_levels_.end());
  if (lowest < MPI_THREAD_SERIALIZED) return ThreadUse::kMainThreadOnly;
  return lowest == MPI_THREAD_SERIALIZED ? ThreadUse::kOneThreadAtATime : ThreadUse::kAnyThread;
}

std::string MpiProcessGroup::thread_advice() const {
  if (thread_use() != ThreadUse::kMainThreadOnly) return {};
  const auto lowest = std::min_element(thread_levels_.begin(), thread_levels_.end());
  return fmt::format(
      "process {} runs MPI with {}, which allows MPI in its main thread only; call MPI_Init_thread with "
      "MPI_THREAD_MULTIPLE instead of MPI_Init, or let Farandole initialise MPI",
      lowest - thread_levels_.begin(), thread_level_name(*lowest));
}

void MpiProcessGroup::allgather(const void* mine, void* all, std::size_t bytes) {
  const Watch watch(watch_);
  gather(mine, all, bytes);
}

void MpiProcessGroup::gather(const void* mine, void* all, std::size_t bytes) {
  if (bytes > INT_MAX) {
    throw InternalError(
        fmt::format("allgather between processes: {} bytes per process, at most {} are possible", bytes, INT_MAX));
  }
  // MPI may still use this memory after the wait has thrown; the session then keeps the memory.
  std::vector<std::byte> memory(bytes * (static_cast<std::size_t>(process_count()) + 1));
  std::memcpy(memory.data(), mine, bytes);
  std::byte* const gathered = memory.data() + bytes;
  MPI_Request request = MPI_REQUEST_NULL;
  const int count = static_cast<int>(bytes);
  {
    const auto guard = session_.enter("MPI_Iallgather");
    check(MPI_Iallgather(memory.data(), count, MPI_BYTE, gathered, count, MPI_BYTE, session_.messages(), &request),
          "MPI_Iallgather");
  }
  try {
    session_.wait(request, "MPI_Iallgather", [this] { run_wait_callback(); });
  } catch (...) {
    session_.keep(std::move(memory));
    throw;
  }
  std::memcpy(all, gathered, memory.size() - bytes);
}

std::unique_ptr<VendorCollectives> MpiProcessGroup::vendor_collectives(std::span<const int> processes,
                                                                       std::uint16_t id) {
  const bool must_not_block =
      std::find(thread_levels_.begin(), thread_levels_.end(), MPI_THREAD_SERIALIZED) != thread_levels_.end();
  if (must_not_block) return nullptr;
  return make_vendor_collectives(session_, processes, id, limits_.collective_count);
}

void MpiProcessGroup::rest() {
  std::this_thread::sleep_for(std::chrono::microseconds(50));
}

void MpiProcessGroup::leave() {
  if (!session_.is_usable()) {
    (void)session_.enter("leaving the job");
    return;
  }
  control_messages_.close();
  session_.close(/*in_good_order=*/true);
}

}  // namespace farandole::mpi
