// SPDX-License-Identifier: Apache-2.0
// Control messages between processes, over MPI.
#pragma once

#include <mpi.h>

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "farandole/sdk/backend.h"
#include "mpi_session.h"

namespace farandole::mpi {

// Control messages have an MPI communicator of their own: their receive with MPI_ANY_SOURCE would slow the matching of
// data messages.
inline constexpr int kControlTag = 0;

/// Sends and receives control messages. A receive from any source is always posted; sends are freed when they are
/// complete. Control messages of the same sender arrive in the order in which they were posted. Thread-safe.
class MpiControlMessages {
 public:
  explicit MpiControlMessages(MpiSession& session);
  ~MpiControlMessages();
  MpiControlMessages(const MpiControlMessages&) = delete;
  MpiControlMessages& operator=(const MpiControlMessages&) = delete;

  /// Sends a control message. Non-blocking. @throws TransportError
  void post(int process, const ControlMessage& control);
  /// Returns the next control message, if any has arrived. Non-blocking. @throws TransportError
  std::optional<ControlMessage> poll();
  /// True if all sends are complete.
  bool is_flushed();
  /// Waits briefly for incomplete sends, and cancels the receive. Never throws.
  void close();

 private:
  struct Outgoing {
    MPI_Request request = MPI_REQUEST_NULL;
    std::unique_ptr<ControlMessage> control;
  };
  /// Posts the receive.
  void listen();
  /// Frees completed sends.
  void sweep();

  MpiSession& session_;
  std::mutex mutex_;  // guards the members below
  std::unique_ptr<ControlMessage> incoming_;
  MPI_Request receive_ = MPI_REQUEST_NULL;
  std::vector<Outgoing> outgoing_;
};

}  // namespace farandole::mpi
