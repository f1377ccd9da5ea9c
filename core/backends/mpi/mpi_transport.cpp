// SPDX-License-Identifier: Apache-2.0
#include "mpi_transport.h"

#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <climits>

#include "farandole/core/error.h"
#include "farandole/internal/log.h"
#include "mpi_runtime.h"

namespace farandole::mpi {

namespace {

// Measured orders of magnitude: for two ranks on the same host, and over a network of 10 Gbit/s.
constexpr LinkCost kHostCost{1.0, 1e6 / 8e9};
constexpr LinkCost kNetworkCost{20.0, 1e6 / 1.2e9};

/// True if this MPI reports support of CUDA device memory.
bool is_cuda_aware(const MpiSession& session) {
#if defined(MPIX_CUDA_AWARE_SUPPORT) || defined(MPIX_GPU_SUPPORT_CUDA)
  const auto guard = session.enter("the query of CUDA's support");
#endif
#ifdef MPIX_CUDA_AWARE_SUPPORT
  return MPIX_Query_cuda_support() != 0;
#elif defined(MPIX_GPU_SUPPORT_CUDA)
  int is_supported = 0;
  check(MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &is_supported), "MPIX_GPU_query_support");
  return is_supported != 0;
#else
  (void)session;
  return false;
#endif
}

/// A message in flight: an MPI request per part, tested in order.
class MpiTransfer : public Transfer {
 public:
  MpiTransfer(MpiSession& session, const Channel& channel, std::size_t bytes, std::size_t slice_bytes)
      : session_(session), channel_(channel), bytes_(bytes), part_bytes_(slice_bytes) {
    parts_ = bytes == 0 ? 1 : (bytes - 1) / slice_bytes + 1;
    if (parts_ > 1) later_requests_.assign(parts_ - 1, MPI_REQUEST_NULL);
  }

 protected:
  MPI_Request& request(std::size_t part) { return part == 0 ? first_request_ : later_requests_[part - 1]; }
  std::size_t part_size(std::size_t part) const { return std::min(part_bytes_, bytes_ - part * part_bytes_); }
  bool is_complete() const { return done_ == parts_; }
  std::string describe(std::string_view what) const {
    return fmt::format("{} of {} bytes from rank {} to rank {} (communicator {}, lane {})", what, bytes_,
                       channel_.source, channel_.target, channel_.communicator, channel_.lane);
  }

  MpiSession& session_;
  const Channel channel_;
  const std::size_t bytes_;
  const std::size_t part_bytes_;
  std::size_t parts_ = 1;
  std::size_t done_ = 0;

 private:
  MPI_Request first_request_ = MPI_REQUEST_NULL;
  std::vector<MPI_Request> later_requests_;  // nearly always empty, which saves an allocation per message
};

class SendTransfer final : public MpiTransfer {
 public:
  using MpiTransfer::MpiTransfer;
  ~SendTransfer() override { give_up(); }
  BufferHazard withdraw() override { return give_up(); }
  void start(const void* data, int process, int tag) {
    const auto guard = session_.enter("MPI_Isend");
    for (std::size_t part = 0; part < parts_; ++part) {
      const void* from = static_cast<const std::byte*>(data) + part * part_bytes_;
      const int code = MPI_Isend(from, static_cast<int>(part_size(part)), MPI_BYTE, process, tag, session_.messages(),
                                 &request(part));
      if (code != MPI_SUCCESS) throw_mpi_error(code, describe("MPI_Isend"));
    }
  }
  bool test() override {
    if (is_complete()) return true;
    const auto guard = session_.enter("MPI_Test of a send");
    for (; !is_complete(); ++done_) {
      int arrived = 0;
      const int code = MPI_Test(&request(done_), &arrived, MPI_STATUS_IGNORE);
      if (code != MPI_SUCCESS) throw_mpi_error(code, describe("send"));
      if (arrived == 0) return false;
    }
    return true;
  }

 private:
  /// Frees incomplete sends. MPI completes a freed send by itself, and may read the memory until then.
  BufferHazard give_up() {
    auto hazard = BufferHazard::kNone;
    if (is_complete() || !session_.is_usable()) return hazard;
    const auto guard = session_.lock();
    for (std::size_t part = done_; part < parts_; ++part) {
      int sent = 0;
      if (MPI_Test(&request(part), &sent, MPI_STATUS_IGNORE) != MPI_SUCCESS || sent != 0) continue;
      MPI_Request_free(&request(part));
      hazard = BufferHazard::kRead;
    }
    return hazard;
  }
};

class RecvTransfer final : public MpiTransfer {
 public:
  using MpiTransfer::MpiTransfer;
  ~RecvTransfer() override { give_up(); }
  BufferHazard withdraw() override { return give_up(); }
  void start(void* data, int process, int tag) {
    const auto guard = session_.enter("MPI_Irecv");
    for (std::size_t part = 0; part < parts_; ++part) {
      void* to = static_cast<std::byte*>(data) + part * part_bytes_;
      const int code =
          MPI_Irecv(to, static_cast<int>(part_size(part)), MPI_BYTE, process, tag, session_.messages(), &request(part));
      if (code != MPI_SUCCESS) throw_mpi_error(code, describe("MPI_Irecv"));
    }
  }
  bool test() override {
    if (is_complete()) return true;
    const auto guard = session_.enter("MPI_Test of a receive");
    for (; !is_complete(); ++done_) {
      int arrived = 0;
      MPI_Status status;
      const int code = MPI_Test(&request(done_), &arrived, &status);
      if (code != MPI_SUCCESS) throw_failed(code);
      if (arrived == 0) return false;
      int actual_bytes = 0;
      check(MPI_Get_count(&status, MPI_BYTE, &actual_bytes), "MPI_Get_count");
      received_bytes_ += static_cast<std::size_t>(actual_bytes);
      if (static_cast<std::size_t>(actual_bytes) != part_size(done_) && !allows_shorter_) {
        throw_wrong_size(fmt::format("{} bytes", received_bytes_));
      }
    }
    return true;
  }
  void allow_shorter() { allows_shorter_ = true; }
  std::size_t received_bytes() const override { return received_bytes_; }

 private:
  bool allows_shorter_ = false;
  std::size_t received_bytes_ = 0;

  [[noreturn]] void throw_failed(int code) const {
    int error_class = 0;
    if (MPI_Error_class(code, &error_class) == MPI_SUCCESS && error_class == MPI_ERR_TRUNCATE) throw_wrong_size("more");
    throw_mpi_error(code, describe("receive"));
  }
  [[noreturn]] void throw_wrong_size(std::string_view actual) const {
    throw TransportError(
        fmt::format("{}: {} came; both ranks must call the same collectives in the same order with the same counts",
                    describe("receive"), actual));
  }
  BufferHazard give_up() {
    if (is_complete() || !session_.is_usable()) return BufferHazard::kNone;
    {
      const auto guard = session_.lock();
      for (std::size_t part = done_; part < parts_; ++part) {
        if (request(part) != MPI_REQUEST_NULL) MPI_Cancel(&request(part));
      }
    }
    bool settled = true;
    for (std::size_t part = done_; part < parts_; ++part) settled = session_.settle(request(part)) && settled;
    if (settled) {
      done_ = parts_;
      return BufferHazard::kNone;
    }
    log(LogLevel::kError, describe("receive") +
                              ": its sender has stopped in the middle of the message; MPI cannot withdraw it, and may "
                              "still write to its memory");
    return BufferHazard::kWritten;
  }
};

}  // namespace

TagLayout::TagLayout(int max_replicas, int tag_upper_bound)
    : replica_bits_(std::bit_width(static_cast<unsigned>(max_replicas - 1))) {
  const Channel last{kMaxCommunicators - 1, kLanes - 1, 0, 0};
  const int highest = pack(last, max_replicas - 1, max_replicas - 1);
  if (highest > tag_upper_bound) {
    throw Unsupported(
        fmt::format("this MPI allows tags up to {}, but {} replicas per process need tags up to {}; use fewer "
                    "replicas per process and more processes, or another MPI",
                    tag_upper_bound, max_replicas, highest));
  }
}

MpiTransport::MpiTransport(MpiSession& session, std::size_t slice_bytes)
    : session_(session),
      part_bytes_(std::min<std::size_t>(slice_bytes, INT_MAX)),
      takes_device_memory_(is_cuda_aware(session)),
      tags_(1, session.runtime().tag_upper_bound) {}

void MpiTransport::set_topology(const Topology& topology) {
  for (int process = 0; process < topology.process_count(); ++process) {
    max_replicas_ = std::max(max_replicas_, topology.process(process).replicas);
  }
  tags_ = TagLayout(max_replicas_, session_.runtime().tag_upper_bound);
  cost_ = topology.host_count() > 1 ? kNetworkCost : kHostCost;
  addresses_.clear();
  for (int rank = 0; rank < topology.size(); ++rank) {
    addresses_.push_back({topology.rank(rank).process, topology.rank(rank).replica});
  }
}

int MpiTransport::tag_of(const Channel& channel) const {
  const auto is_rank = [this](int rank) { return rank >= 0 && static_cast<std::size_t>(rank) < addresses_.size(); };
  if (channel.communicator >= kMaxCommunicators || channel.lane >= kLanes || !is_rank(channel.source) ||
      !is_rank(channel.target)) {
    throw InternalError(fmt::format("no such channel: communicator {}, lane {}, from rank {} to rank {} of {}",
                                    channel.communicator, channel.lane, channel.source, channel.target,
                                    addresses_.size()));
  }
  return tags_.pack(channel, addresses_[static_cast<std::size_t>(channel.source)].replica,
                    addresses_[static_cast<std::size_t>(channel.target)].replica);
}

std::unique_ptr<Transfer> MpiTransport::send(const Channel& channel, const void* data, std::size_t bytes) {
  const int tag = tag_of(channel);
  auto transfer = std::make_unique<SendTransfer>(session_, channel, bytes, part_bytes_);
  transfer->start(data, addresses_[static_cast<std::size_t>(channel.target)].process, tag);
  sent_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return transfer;
}

std::unique_ptr<Transfer> MpiTransport::recv(const Channel& channel, void* data, std::size_t bytes) {
  const int tag = tag_of(channel);
  auto transfer = std::make_unique<RecvTransfer>(session_, channel, bytes, part_bytes_);
  transfer->start(data, addresses_[static_cast<std::size_t>(channel.source)].process, tag);
  return transfer;
}

std::unique_ptr<Transfer> MpiTransport::recv_up_to(const Channel& channel, void* data, std::size_t max_bytes) {
  const int tag = tag_of(channel);
  auto transfer = std::make_unique<RecvTransfer>(session_, channel, max_bytes, kMaxUnknownBytes);
  transfer->allow_shorter();
  transfer->start(data, addresses_[static_cast<std::size_t>(channel.source)].process, tag);
  return transfer;
}

bool MpiTransport::has_arrived(std::uint16_t communicator, std::uint8_t lane, int target) {
  const int replica = addresses_[static_cast<std::size_t>(target)].replica;
  const auto guard = session_.enter("MPI_Iprobe");
  for (int source = 0; source < max_replicas_; ++source) {
    int arrived = 0;
    const int tag = tags_.pack({communicator, lane, 0, target}, source, replica);
    check(MPI_Iprobe(MPI_ANY_SOURCE, tag, session_.messages(), &arrived, MPI_STATUS_IGNORE), "MPI_Iprobe");
    if (arrived != 0) return true;
  }
  return false;
}

}  // namespace farandole::mpi
