// SPDX-License-Identifier: Apache-2.0
// Messages between ranks that are threads of this process: the receiver reads the sender's memory.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "farandole/sdk/transport.h"

namespace farandole {

/// Connects the ranks of one process. Thread-safe, as every Transport.
///
/// Protocol: each rank has a mailbox, which holds a queue of posted sends and a queue of posted receives per channel. A
/// send posts an envelope (address and length) in the target's mailbox and wakes the target. When a receive is tested
/// and is the first of its channel, it takes the first envelope, copies or reduces straight from the sender's memory,
/// marks the envelope done and wakes the sender. So every message is one pass over the data without a bounce buffer,
/// and a send completes only when it has been received (unbuffered).
class InprocTransport final : public Transport {
 public:
  /// @param first_rank, count  ranks `first_rank` … `first_rank + count - 1` live in this process
  /// @param wake  wakes the threads that wait for a rank; called without locks held
  InprocTransport(int first_rank, int count, std::function<void(int)> wake);
  ~InprocTransport() override;

  std::string_view name() const override { return "inproc"; }
  std::unique_ptr<Transfer> send(const Channel& channel, const void* data, std::size_t bytes) override;
  std::unique_ptr<Transfer> recv(const Channel& channel, void* data, std::size_t bytes) override;
  std::unique_ptr<Transfer> recv_up_to(const Channel& channel, void* data, std::size_t max_bytes) override;
  std::unique_ptr<Transfer> recv_reduce(const Channel& channel, void* out, const void* operand, std::size_t count,
                                        DType dtype, ReduceOp op) override;
  bool fuses_reduction() const override { return true; }
  bool has_arrived(std::uint16_t communicator, std::uint8_t lane, int target) override;
  LinkCost cost() const override { return {0.5, 1e-4}; }

 private:
  struct Envelope;
  struct Mailbox;
  class SendTransfer;
  class RecvTransfer;
  Mailbox& mailbox_of(int rank) { return *mailboxes_[static_cast<std::size_t>(rank - first_rank_)]; }

  const int first_rank_;
  const std::function<void(int)> wake_;
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;
};

}  // namespace farandole
