// SPDX-License-Identifier: Apache-2.0
#include "inproc/inproc_transport.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/core/reduce.h"

namespace farandole {

/// A posted send. Its SendTransfer and the mailbox share it.
struct InprocTransport::Envelope {
  enum State : int { kPosted, kTaken, kDone, kWithdrawn };
  const void* data = nullptr;
  std::size_t bytes = 0;
  int source = 0;
  // From kPosted, either the receiver sets kTaken or the sender sets kWithdrawn. The receiver's release store of kDone
  // pairs with the sender's acquire load: the receiver has finished reading `data`.
  std::atomic<int> state{kPosted};
};

/// Posted sends and receives of one target rank. The mutex guards all channels.
struct InprocTransport::Mailbox {
  struct ChannelQueue {
    std::deque<std::shared_ptr<Envelope>> sends;
    std::deque<const RecvTransfer*> receivers;  // in posted order: the front gets the next message
    std::atomic<int> send_count{0};             // sends.size(), for receivers that poll without taking the lock
  };
  /// Source, communicator and lane in one number; the mailbox belongs to the target.
  static std::uint64_t key(const Channel& channel) {
    return (static_cast<std::uint64_t>(channel.source) << 24) |
           (static_cast<std::uint64_t>(channel.communicator) << 8) | channel.lane;
  }
  std::mutex mutex;
  std::unordered_map<std::uint64_t, ChannelQueue> channels;  // by key()
};

class InprocTransport::SendTransfer final : public Transfer {
 public:
  explicit SendTransfer(std::shared_ptr<Envelope> envelope) : envelope_(std::move(envelope)) {}
  SendTransfer(const SendTransfer&) = delete;
  SendTransfer& operator=(const SendTransfer&) = delete;
  ~SendTransfer() override {
    int expected = Envelope::kPosted;
    if (envelope_->state.compare_exchange_strong(expected, Envelope::kWithdrawn)) return;
    // The receiver is reading the sender's memory, which must stay valid until the receiver has copied or reduced it.
    while (!test()) std::this_thread::yield();
  }
  bool test() override { return envelope_->state.load(std::memory_order_acquire) == Envelope::kDone; }

 private:
  std::shared_ptr<Envelope> envelope_;
};

class InprocTransport::RecvTransfer final : public Transfer {
 public:
  RecvTransfer(InprocTransport& transport, const Channel& channel, std::size_t bytes)
      : transport_(transport), channel_(channel), mailbox_(transport.mailbox_of(channel.target)), bytes_(bytes) {
    const std::lock_guard lock(mailbox_.mutex);
    queue_ = &mailbox_.channels[Mailbox::key(channel)];
    queue_->receivers.push_back(this);
  }
  RecvTransfer(const RecvTransfer&) = delete;
  RecvTransfer& operator=(const RecvTransfer&) = delete;
  ~RecvTransfer() override {
    if (complete_) return;
    const std::lock_guard lock(mailbox_.mutex);
    std::erase(queue_->receivers, this);
  }

  void copy_to(void* data) { out_ = data; }
  void accept_shorter() { may_be_shorter_ = true; }
  void reduce_to(void* out, const void* operand, std::size_t count, DType dtype, ReduceOp op) {
    out_ = out, operand_ = operand, count_ = count, dtype_ = dtype, op_ = op;
  }

  bool test() override {
    if (complete_) return true;
    const auto envelope = take();
    if (!envelope) return false;
    complete_ = true;
    received_bytes_ = envelope->bytes;
    const bool fits = received_bytes_ == bytes_ || (may_be_shorter_ && received_bytes_ < bytes_);
    if (fits) consume(envelope->data);
    const int source = envelope->source;
    envelope->state.store(Envelope::kDone, std::memory_order_release);
    transport_.wake_(source);
    if (!fits) {
      throw TransportError(fmt::format("rank {} expected a message of {} bytes from rank {} and got one of {} bytes",
                                       channel_.target, bytes_, source, received_bytes_));
    }
    return true;
  }
  std::size_t received_bytes() const override { return received_bytes_; }

 private:
  /// The message for this receive; null if none has been posted yet, or an earlier receive of the channel comes first.
  std::shared_ptr<Envelope> take() {
    if (queue_->send_count.load(std::memory_order_relaxed) == 0) return nullptr;
    const std::lock_guard lock(mailbox_.mutex);
    if (queue_->receivers.front() != this) return nullptr;
    while (!queue_->sends.empty()) {
      auto envelope = std::move(queue_->sends.front());
      queue_->sends.pop_front();
      queue_->send_count.fetch_sub(1, std::memory_order_relaxed);
      int expected = Envelope::kPosted;
      if (envelope->state.compare_exchange_strong(expected, Envelope::kTaken)) {
        queue_->receivers.pop_front();
        return envelope;
      }
    }
    return nullptr;
  }

  void consume(const void* incoming) const {
    if (operand_ != nullptr) {
      reduce(out_, operand_, incoming, count_, dtype_, op_);
    } else if (received_bytes_ > 0) {
      std::memcpy(out_, incoming, received_bytes_);
    }
  }

  InprocTransport& transport_;
  const Channel channel_;
  Mailbox& mailbox_;
  Mailbox::ChannelQueue* queue_ = nullptr;
  const std::size_t bytes_;
  bool may_be_shorter_ = false;
  std::size_t received_bytes_ = 0;
  void* out_ = nullptr;
  const void* operand_ = nullptr;
  std::size_t count_ = 0;
  DType dtype_ = DType::kU8;
  ReduceOp op_ = ReduceOp::kSum;
  bool complete_ = false;
};

InprocTransport::InprocTransport(int first_rank, int count, std::function<void(int)> wake)
    : first_rank_(first_rank), wake_(std::move(wake)) {
  for (int i = 0; i < count; ++i) mailboxes_.push_back(std::make_unique<Mailbox>());
}

InprocTransport::~InprocTransport() = default;

std::unique_ptr<Transfer> InprocTransport::send(const Channel& channel, const void* data, std::size_t bytes) {
  auto envelope = std::make_shared<Envelope>();
  envelope->data = data;
  envelope->bytes = bytes;
  envelope->source = channel.source;
  {
    Mailbox& mailbox = mailbox_of(channel.target);
    const std::lock_guard lock(mailbox.mutex);
    Mailbox::ChannelQueue& queue = mailbox.channels[Mailbox::key(channel)];
    queue.sends.push_back(envelope);
    queue.send_count.fetch_add(1, std::memory_order_relaxed);
  }
  wake_(channel.target);
  return std::make_unique<SendTransfer>(std::move(envelope));
}

std::unique_ptr<Transfer> InprocTransport::recv(const Channel& channel, void* data, std::size_t bytes) {
  auto transfer = std::make_unique<RecvTransfer>(*this, channel, bytes);
  transfer->copy_to(data);
  return transfer;
}

std::unique_ptr<Transfer> InprocTransport::recv_up_to(const Channel& channel, void* data, std::size_t max_bytes) {
  auto transfer = std::make_unique<RecvTransfer>(*this, channel, max_bytes);
  transfer->copy_to(data);
  transfer->accept_shorter();
  return transfer;
}

std::unique_ptr<Transfer> InprocTransport::recv_reduce(const Channel& channel, void* out, const void* operand,
                                                       std::size_t count, DType dtype, ReduceOp op) {
  auto transfer = std::make_unique<RecvTransfer>(*this, channel, count * size_in_bytes(dtype));
  transfer->reduce_to(out, operand, count, dtype, op);
  return transfer;
}

bool InprocTransport::has_arrived(std::uint16_t communicator, std::uint8_t lane, int target) {
  Mailbox& mailbox = mailbox_of(target);
  const std::uint64_t wanted = Mailbox::key({communicator, lane, 0, target});
  constexpr std::uint64_t kWithoutSource = (1U << 24) - 1;
  const std::lock_guard lock(mailbox.mutex);
  return std::any_of(mailbox.channels.begin(), mailbox.channels.end(), [&](const auto& entry) {
    return (entry.first & kWithoutSource) == wanted && entry.second.receivers.empty() && !entry.second.sends.empty();
  });
}

}  // namespace farandole
