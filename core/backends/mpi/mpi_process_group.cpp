#include "mpi_process_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <thread>

#include "farandole/core/error.h"
#include "mpi_error.h"
#include "mpi_vendor.h"

namespace farandole::mpi {

MpiProcessGroup::MpiProcessGroup(const Runtime& runtime, const Watch::Times& watch, PartLimits limits)
    : session_(MpiSession::open(runtime)),
      watch_(watch),
      limits_(limits),
      notices_(session_),
      transport_(session_, limits.message_bytes),
      thread_levels_(static_cast<std::size_t>(session_.process_count())) {
  session_.set_farewell([this] { notices_.close(); });
  gather(&runtime.thread_level, thread_levels_.data(), sizeof(int));
}

MpiProcessGroup::~MpiProcessGroup() {
  notices_.close();
  session_.close(/*in_good_order=*/false);
}

// The weakest process decides for all, so that every rank of the job can do the same things.
ThreadUse MpiProcessGroup::thread_use() const {
  const int weakest = *std::min_element(thread_levels_.begin(), thread_levels_.end());
  if (weakest < MPI_THREAD_SERIALIZED) return ThreadUse::kMainThreadOnly;
  return weakest == MPI_THREAD_SERIALIZED ? ThreadUse::kOneThreadAtATime : ThreadUse::kAnyThread;
}

std::string MpiProcessGroup::thread_advice() const {
  if (thread_use() != ThreadUse::kMainThreadOnly) return {};
  const auto weakest = std::min_element(thread_levels_.begin(), thread_levels_.end());
  return fmt::format(
      "process {} runs MPI with {}, which allows MPI in its main thread only; call MPI_Init_thread with "
      "MPI_THREAD_MULTIPLE instead of MPI_Init, or let Farandole initialise MPI",
      weakest - thread_levels_.begin(), thread_level_name(*weakest));
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
  MPI_Request request = MPI_REQUEST_NULL;
  const int count = static_cast<int>(bytes);
  {
    const auto guard = session_.enter("MPI_Iallgather");
    check(MPI_Iallgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, session_.messages(), &request), "MPI_Iallgather");
  }
  session_.wait(request, "MPI_Iallgather");
}

std::unique_ptr<VendorCollectives> MpiProcessGroup::vendor_collectives(std::span<const int> processes,
                                                                       std::uint16_t id) {
  const bool must_not_block =
      std::find(thread_levels_.begin(), thread_levels_.end(), MPI_THREAD_SERIALIZED) != thread_levels_.end();
  if (must_not_block) return nullptr;
  return make_vendor_collectives(session_, processes, id, limits_.collective_count);
}

// A peer that has failed does not come to the barrier; its notice does.
void MpiProcessGroup::look_for_faults_and_rest(const Heard& heard) {
  while (const auto notice = notices_.poll()) {
    if (heard) heard(&*notice);
  }
  if (const auto fault = notices_.fault()) {
    const std::string text(fault->text, strnlen(fault->text, sizeof(fault->text)));
    throw_error(static_cast<ErrorKind>(fault->error_kind), fmt::format("while leaving the job: {}", text));
  }
  if (heard) heard(nullptr);
  std::this_thread::sleep_for(std::chrono::microseconds(50));
}

void MpiProcessGroup::leave(const Heard& heard) {
  if (!session_.is_usable()) {
    (void)session_.enter("leaving the job");
    return;
  }
  // Notices first: afterwards their targets may be gone.
  while (!notices_.is_flushed()) look_for_faults_and_rest(heard);
  MPI_Request barrier = MPI_REQUEST_NULL;
  {
    const auto guard = session_.enter("MPI_Ibarrier of leaving the job");
    check(MPI_Ibarrier(session_.notices(), &barrier), "MPI_Ibarrier of leaving the job");
  }
  for (int done = 0;;) {
    {
      const auto guard = session_.enter("MPI_Test of leaving the job");
      check(MPI_Test(&barrier, &done, MPI_STATUS_IGNORE), "MPI_Ibarrier of leaving the job");
    }
    if (done != 0) break;
    look_for_faults_and_rest(heard);
  }
  notices_.close();
  session_.close(/*in_good_order=*/true);
}

}  // namespace farandole::mpi
