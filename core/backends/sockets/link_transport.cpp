// SPDX-License-Identifier: Apache-2.0
#include "sockets/link_transport.h"

#include <fmt/format.h>

#include <utility>

#include "farandole/core/dtype.h"
#include "farandole/core/error.h"

namespace farandole::sockets {
namespace {

// Bits of a key, from the highest down: communicator, lane, target rank and source rank; 20 bits per rank.
constexpr int kRankBits = 20;
constexpr Key kWithoutSource = ~((Key{1} << kRankBits) - 1);

Key key_of(const Channel& channel) {
  Key key = channel.communicator;
  key = key * kLanes + channel.lane;
  key = (key << kRankBits) | static_cast<Key>(channel.target);
  return (key << kRankBits) | static_cast<Key>(channel.source);
}

class SendTransfer final : public Transfer {
 public:
  SendTransfer(LinkTransport& transport, const Channel& channel, Sending message)
      : transport_(transport), target_(channel.target), traffic_(channel.traffic), message_(std::move(message)) {}
  bool test() override {
    if (message_.test()) return true;
    transport_.check_peer(target_, traffic_, wait_);
    return false;
  }

 private:
  LinkTransport& transport_;
  const int target_;
  const Traffic traffic_;
  Sending message_;
  LinkTransport::WaitState wait_;
};

class RecvTransfer final : public Transfer {
 public:
  RecvTransfer(LinkTransport& transport, const Channel& channel, std::size_t bytes, Length length, Receiving message)
      : transport_(transport), channel_(channel), bytes_(bytes), length_(length), message_(std::move(message)) {}
  bool test() override {
    if (!message_.test()) {
      transport_.check_peer(channel_.source, channel_.traffic, wait_);
      return false;
    }
    const bool is_shorter = length_ == Length::kAtMost && message_.bytes() < bytes_;
    if (message_.bytes() != bytes_ && !is_shorter) {
      throw TransportError(fmt::format(
          "receive of {} bytes from rank {} to rank {} (communicator {}, lane {}): {} bytes came; both ranks must call "
          "the same collectives in the same order with the same counts",
          bytes_, channel_.source, channel_.target, channel_.communicator, channel_.lane, message_.bytes()));
    }
    return true;
  }
  std::size_t received_bytes() const override { return message_.bytes(); }

 private:
  LinkTransport& transport_;
  const Channel channel_;
  const std::size_t bytes_;
  const Length length_;
  Receiving message_;
  LinkTransport::WaitState wait_;
};

}  // namespace

Link& LinkTransport::link_of(const Channel& channel, int peer) {
  const auto is_rank = [this](int rank) { return rank >= 0 && rank < topology_->size(); };
  const bool is_channel = channel.communicator < kMaxCommunicators && channel.lane < kLanes &&
                          is_rank(channel.source) && is_rank(channel.target);
  Link* link = is_channel ? link_with(topology_->rank(peer).process, channel.traffic) : nullptr;
  if (link == nullptr) {
    throw InternalError(fmt::format("no such channel: communicator {}, lane {}, from rank {} to rank {} of {}",
                                    channel.communicator, channel.lane, channel.source, channel.target,
                                    topology_->size()));
  }
  return *link;
}

std::unique_ptr<Transfer> LinkTransport::send(const Channel& channel, const void* data, std::size_t bytes) {
  Link& link = link_of(channel, channel.target);
  auto transfer = std::make_unique<SendTransfer>(*this, channel, link.send(key_of(channel), data, bytes));
  sent_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return transfer;
}

std::unique_ptr<Transfer> LinkTransport::recv(const Channel& channel, void* data, std::size_t bytes) {
  Link& link = link_of(channel, channel.source);
  return std::make_unique<RecvTransfer>(*this, channel, bytes, Length::kExact, link.recv(key_of(channel), data, bytes));
}

std::unique_ptr<Transfer> LinkTransport::recv_up_to(const Channel& channel, void* data, std::size_t max_bytes) {
  Link& link = link_of(channel, channel.source);
  return std::make_unique<RecvTransfer>(*this, channel, max_bytes, Length::kAtMost,
                                        link.recv(key_of(channel), data, max_bytes, Length::kAtMost));
}

std::unique_ptr<Transfer> LinkTransport::recv_reduce(const Channel& channel, void* out, const void* operand,
                                                     std::size_t count, DType dtype, ReduceOp op) {
  Link& link = link_of(channel, channel.source);
  return std::make_unique<RecvTransfer>(*this, channel, count * size_in_bytes(dtype), Length::kExact,
                                        link.recv_reduce(key_of(channel), out, operand, count, dtype, op));
}

bool LinkTransport::has_arrived(std::uint16_t communicator, std::uint8_t lane, int target) {
  before_polling();
  const Key wanted = key_of({communicator, lane, 0, target});
  for (int process = 0; process < topology_->process_count(); ++process) {
    for (const Traffic traffic : {Traffic::kShort, Traffic::kLong}) {
      Link* const link = find_link(process, traffic);
      if (link != nullptr && link->has_arrived(wanted, kWithoutSource)) return true;
    }
  }
  return false;
}

}  // namespace farandole::sockets
