// SPDX-License-Identifier: Apache-2.0
// Notices between processes, outside every collective: one receive is always posted, sends are swept when complete.
#pragma once

#include <mpi.h>

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "farandole/sdk/backend.h"
#include "mpi_session.h"

namespace farandole::mpi {

// Notices have a communicator of their own, so that their receive from anybody slows no match of messages.
inline constexpr int kNoticeTag = 0;

/// Thread-safe. Notices of one sender arrive in the order in which they were posted.
class MpiNotices {
 public:
  explicit MpiNotices(MpiSession& session);
  ~MpiNotices();
  MpiNotices(const MpiNotices&) = delete;
  MpiNotices& operator=(const MpiNotices&) = delete;

  /// Never blocks. @throws TransportError
  void post(int process, const Notice& notice);
  std::optional<Notice> poll();
  /// True if MPI holds no posted notice any more.
  bool is_flushed();
  /// Gives posted notices a moment to leave and withdraws the receive. Never throws.
  void close();

 private:
  struct Outgoing {
    MPI_Request request = MPI_REQUEST_NULL;
    std::unique_ptr<Notice> notice;
  };
  void listen();
  void sweep();

  MpiSession& session_;
  std::mutex mutex_;  // guards everything below
  std::unique_ptr<Notice> incoming_;
  MPI_Request receive_ = MPI_REQUEST_NULL;
  std::vector<Outgoing> outgoing_;
};

}  // namespace farandole::mpi
