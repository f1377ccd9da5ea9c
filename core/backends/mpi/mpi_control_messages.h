// SPDX-License-Identifier: Apache-2.0
// Control messages between processes, outside every collective: one receive is always posted, sends are swept when
// complete.
#pragma once

#include <mpi.h>

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "farandole/sdk/backend.h"
#include "mpi_session.h"

namespace farandole::mpi {

// Control messages have a communicator of their own, so that their receive from anybody slows no match of messages.
inline constexpr int kControlTag = 0;

/// Thread-safe. Control messages of one sender arrive in the order in which they were posted.
class MpiControlMessages {
 public:
  explicit MpiControlMessages(MpiSession& session);
  ~MpiControlMessages();
  MpiControlMessages(const MpiControlMessages&) = delete;
  MpiControlMessages& operator=(const MpiControlMessages&) = delete;

  /// Never blocks. @throws TransportError
  void post(int process, const ControlMessage& control);
  std::optional<ControlMessage> poll();
  /// True if MPI holds no posted control message any more.
  bool is_flushed();
  /// Gives posted control messages a moment to leave and withdraws the receive. Never throws.
  void close();

 private:
  struct Outgoing {
    MPI_Request request = MPI_REQUEST_NULL;
    std::unique_ptr<ControlMessage> control;
  };
  void listen();
  void sweep();

  MpiSession& session_;
  std::mutex mutex_;  // guards everything below
  std::unique_ptr<ControlMessage> incoming_;
  MPI_Request receive_ = MPI_REQUEST_NULL;
  std::vector<Outgoing> outgoing_;
};

}  // namespace farandole::mpi
