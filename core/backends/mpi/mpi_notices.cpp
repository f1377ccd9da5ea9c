// SPDX-License-Identifier: Apache-2.0
#include "mpi_notices.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "farandole/core/error.h"
#include "mpi_error.h"

namespace farandole::mpi {

MpiNotices::MpiNotices(MpiSession& session) : session_(session), incoming_(std::make_unique<Notice>()) {
  listen();
}

MpiNotices::~MpiNotices() {
  close();
}

void MpiNotices::listen() {
  const auto guard = session_.enter("MPI_Irecv of the next notice");
  check(MPI_Irecv(incoming_.get(), sizeof(Notice), MPI_BYTE, MPI_ANY_SOURCE, kNoticeTag, session_.notices(), &receive_),
        "MPI_Irecv of the next notice");
}

void MpiNotices::post(int process, const Notice& notice) {
  const std::lock_guard own(mutex_);
  sweep();
  Outgoing& entry = outgoing_.emplace_back(Outgoing{MPI_REQUEST_NULL, std::make_unique<Notice>(notice)});
  const auto guard = session_.enter("MPI_Isend of a notice");
  const int code =
      MPI_Isend(entry.notice.get(), sizeof(Notice), MPI_BYTE, process, kNoticeTag, session_.notices(), &entry.request);
  if (code != MPI_SUCCESS) {
    outgoing_.pop_back();
    throw_mpi_error(code,
                    fmt::format("MPI_Isend of a notice from process {} to process {}", session_.process(), process));
  }
}

std::optional<Notice> MpiNotices::poll() {
  const std::lock_guard own(mutex_);
  sweep();
  Notice came;
  int bytes = 0, sender = 0;
  {
    const auto guard = session_.enter("MPI_Test for notices");
    if (!incoming_) return std::nullopt;
    int done = 0;
    MPI_Status status;
    if (const int code = MPI_Test(&receive_, &done, &status); code != MPI_SUCCESS) {
      // A dead peer can fail a receive from anybody. Nothing more can be heard, and that must not look like a notice.
      session_.keep(std::move(incoming_));
      throw_mpi_error(code, "MPI_Test for notices");
    }
    if (done == 0) return std::nullopt;
    check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count of a notice");
    came = *incoming_;
    sender = status.MPI_SOURCE;
  }
  listen();
  const auto all_bytes = std::as_bytes(std::span(&came, 1));
  return parse_notice(all_bytes.first(static_cast<std::size_t>(bytes)), sender);
}

bool MpiNotices::is_flushed() {
  const std::lock_guard own(mutex_);
  sweep();
  return outgoing_.empty();
}

void MpiNotices::sweep() {
  if (outgoing_.empty()) return;
  const auto guard = session_.enter("MPI_Test of posted notices");
  std::erase_if(outgoing_, [](Outgoing& entry) {
    int done = 0;
    // A notice that cannot be delivered is dropped: its target is gone, and there is nobody to tell.
    return MPI_Test(&entry.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
  });
}

void MpiNotices::close() {
  const std::lock_guard own(mutex_);
  for (Outgoing& entry : std::exchange(outgoing_, {})) {
    if (!session_.settle(entry.request)) session_.keep(std::move(entry.notice));
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
