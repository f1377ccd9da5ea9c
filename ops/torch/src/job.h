// SPDX-License-Identifier: Apache-2.0
// The job of this process, which the process groups share.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "farandole/collectives.h"

namespace farandole_torch {

struct FreeComm {
  void operator()(farandole_comm* comm) const { farandole_comm_free(comm); }
};
using Comm = std::unique_ptr<farandole_comm, FreeComm>;

/// A process group to make.
struct GroupPlan {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0, size = 1;             ///< in the group
  std::vector<int32_t> global_ranks;  ///< of the group's ranks in the job, in the group's order
  int global_size = 1;                ///< ranks of the job
  std::chrono::milliseconds timeout{0};
  std::string name;
};

/// True if the group has all ranks of the job, in their order.
bool is_whole_job(const GroupPlan& plan);

/// The job of this process: joined by the first process group, left when the last one has ended; a job that a launcher
/// has made stays joined until `leave`, because with MPI a process joins once.
class Job {
 public:
  /// Joins the job, or returns the job in which this process is. Collective over the job if it joins.
  static std::shared_ptr<Job> join(const GroupPlan& plan);
  /// Lets go of a launcher's job, at the end of the program.
  static void leave();
  /// Ends the job with a fault, which quotes `text`; no-op if this process is in no job.
  static void abort(const std::string& text);

  explicit Job(const GroupPlan& plan);
  /// Makes the communicator of a group. Collective over its ranks.
  Comm make_comm(const GroupPlan& plan) const;
  /// Keeps the communicator of an ended group until the job is left, because its calls may never be done.
  void keep(Comm comm);

 private:
  bool was_shared_ = false;  // this job was made through the store
  Comm all_;
  std::vector<Comm> kept_;  // freed before `all_`; guarded by the mutex of the current job
};

}  // namespace farandole_torch
