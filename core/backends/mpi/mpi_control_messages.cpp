// SPDX-License-Identifier: Apache-2.0
#include "mpi_control_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "mpi_runtime.h"

namespace farandole::mpi {

MpiControlMessages::MpiControlMessages(MpiSession& session)
    : session_(session), incoming_(std::make_unique<ControlMessage>()) {
  listen();
}

MpiControlMessages::~MpiControlMessages() {
  close();
}

void MpiControlMessages::listen() {
  const auto guard = session_.enter("MPI_Irecv of the next control message");
  check(MPI_Irecv(incoming_.get(), sizeof(ControlMessage), MPI_BYTE, MPI_ANY_SOURCE, kControlTag,
                  session_.control_messages(), &receive_),
        "MPI_Irecv of the next control message");
}

void MpiControlMessages::post(int process, const ControlMessage& control) {
  const std::lock_guard own(mutex_);
  sweep();
  Outgoing& entry = outgoing_.emplace_back(Outgoing{MPI_REQUEST_NULL, std::make_unique<ControlMessage>(control)});
  const auto guard = session_.enter("MPI_Isend of a control message");
  const int code = MPI_Isend(entry.control.get(), sizeof(ControlMessage), MPI_BYTE, process, kControlTag,
                             session_.control_messages(), &entry.request);
  if (code != MPI_SUCCESS) {
    outgoing_.pop_back();
    throw_mpi_error(
        code, fmt::format("MPI_Isend of a control message from process {} to process {}", session_.process(), process));
  }
}

std::optional<ControlMessage> MpiControlMessages::poll() {
  const std::lock_guard own(mutex_);
  sweep();
  ControlMessage received;
  int bytes = 0, sender = 0;
  {
    const auto guard = session_.enter("MPI_Test for control messages");
    if (!incoming_) return std::nullopt;
    int done = 0;
    MPI_Status status;
    if (const int code = MPI_Test(&receive_, &done, &status); code != MPI_SUCCESS) {
      // A dead peer can make a receive with MPI_ANY_SOURCE fail. Then no more control messages can be received, and
      // `incoming_` must not be taken for a control message.
      session_.keep(std::move(incoming_));
      throw_mpi_error(code, "MPI_Test for control messages");
    }
    if (done == 0) return std::nullopt;
    check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count of a control message");
    received = *incoming_;
    sender = status.MPI_SOURCE;
  }
  listen();
  const auto all_bytes = std::as_bytes(std::span(&received, 1));
  return parse_control_message(all_bytes.first(static_cast<std::size_t>(bytes)), sender);
}

bool MpiControlMessages::is_flushed() {
  const std::lock_guard own(mutex_);
  sweep();
  return outgoing_.empty();
}

void MpiControlMessages::sweep() {
  if (outgoing_.empty()) return;
  const auto guard = session_.enter("MPI_Test of posted control messages");
  std::erase_if(outgoing_, [](Outgoing& entry) {
    int done = 0;
    // Drop control messages that cannot be delivered: the target process is gone.
    return MPI_Test(&entry.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
  });
}

void MpiControlMessages::close() {
  const std::lock_guard own(mutex_);
  for (Outgoing& entry : std::exchange(outgoing_, {})) {
    if (!session_.settle(entry.request)) session_.keep(std::move(entry.control));
  }
  if (!incoming_) return;
  if (session_.is_usable() && receive_ != MPI_REQUEST_NULL) {
    const auto guard = session_.lock();
    MPI_Cancel(&receive_);
  }
  if (!session_.settle(receive_)) session_.keep(std::move(incoming_));
  incoming_.reset();
}

}  // namespace farandole::mpi
