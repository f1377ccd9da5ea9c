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

/// A message that waits to be received. The sender and the mailbox share it.
struct InprocTransport::Envelope {
  enum State : int { kPosted, kTaken, kDone, kWithdrawn };
  const void* data = nullptr;
  std::size_t bytes = 0;
  int source = 0;
  std::atomic<int> state{
      kPosted};  // kPosted→kTaken by the receiver; the release of kDone pairs with the sender's acquire
};

/// What is on its way to one rank. The mutex guards all channels.
struct InprocTransport::Mailbox {
  struct Line {
    std::deque<std::shared_ptr<Envelope>> sends;
    std::deque<const RecvTransfer*> receivers;  // in posted order: the front one gets the next message
    std::atomic<int> waiting{0};                // sends.size(), for receivers that poll without taking the lock
  };
  static std::uint64_t key(const Channel& channel) {
    return (static_cast<std::uint64_t>(channel.source) << 24) |
           (static_cast<std::uint64_t>(channel.communicator) << 8) | channel.lane;
  }
  std::mutex mutex;
  std::unordered_map<std::uint64_t, Line> lines;
};

class InprocTransport::SendTransfer final : public Transfer {
 public:
  explicit SendTransfer(std::shared_ptr<Envelope> envelope) : envelope_(std::move(envelope)) {}
  SendTransfer(const SendTransfer&) = delete;
  SendTransfer& operator=(const SendTransfer&) = delete;
  ~SendTransfer() override {
    int expected = Envelope::kPosted;
    if (envelope_->state.compare_exchange_strong(expected, Envelope::kWithdrawn)) return;
    // The receiver is reading: its copy is short, and the memory must stay until it ends.
    while (!test()) std::this_thread::yield();
  }
  bool test() override { return envelope_->state.load(std::memory_order_acquire) == Envelope::kDone; }

 private:
  std::shared_ptr<Envelope> envelope_;
};

class InprocTransport::RecvTransfer final : public Transfer {
 public:
  RecvTransfer(InprocTransport& transport, const Channel& channel, std::size_t bytes)
      : transport_(transport), channel_(channel), box_(transport.mailbox_of(channel.target)), bytes_(bytes) {
    const std::lock_guard lock(box_.mutex);
    line_ = &box_.lines[Mailbox::key(channel)];
    line_->receivers.push_back(this);
  }
  RecvTransfer(const RecvTransfer&) = delete;
  RecvTransfer& operator=(const RecvTransfer&) = delete;
  ~RecvTransfer() override {
    if (complete_) return;
    const std::lock_guard lock(box_.mutex);
    std::erase(line_->receivers, this);
  }

  void copy_to(void* data) { out_ = data; }
  void take_shorter() { may_be_shorter_ = true; }
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
    transport_.ring_(source);
    if (!fits) {
      throw TransportError(fmt::format("rank {} expected a message of {} bytes from rank {} and got one of {} bytes",
                                       channel_.target, bytes_, source, received_bytes_));
    }
    return true;
  }
  std::size_t received_bytes() const override { return received_bytes_; }

 private:
  std::shared_ptr<Envelope> take() {
    if (line_->waiting.load(std::memory_order_relaxed) == 0) return nullptr;
    const std::lock_guard lock(box_.mutex);
    if (line_->receivers.front() != this) return nullptr;
    while (!line_->sends.empty()) {
      auto envelope = std::move(line_->sends.front());
      line_->sends.pop_front();
      line_->waiting.fetch_sub(1, std::memory_order_relaxed);
      int expected = Envelope::kPosted;
      if (envelope->state.compare_exchange_strong(expected, Envelope::kTaken)) {
        line_->receivers.pop_front();
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
  Mailbox& box_;
  Mailbox::Line* line_ = nullptr;
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

InprocTransport::InprocTransport(int first_rank, int count, std::function<void(int)> ring)
    : first_rank_(first_rank), ring_(std::move(ring)) {
  for (int i = 0; i < count; ++i) mailboxes_.push_back(std::make_unique<Mailbox>());
}

InprocTransport::~InprocTransport() = default;

std::unique_ptr<Transfer> InprocTransport::send(const Channel& channel, const void* data, std::size_t bytes) {
  auto envelope = std::make_shared<Envelope>();
  envelope->data = data;
  envelope->bytes = bytes;
  envelope->source = channel.source;
  {
    Mailbox& box = mailbox_of(channel.target);
    const std::lock_guard lock(box.mutex);
    Mailbox::Line& line = box.lines[Mailbox::key(channel)];
    line.sends.push_back(envelope);
    line.waiting.fetch_add(1, std::memory_order_relaxed);
  }
  ring_(channel.target);
  return std::make_unique<SendTransfer>(std::move(envelope));
}

std::unique_ptr<Transfer> InprocTransport::recv(const Channel& channel, void* data, std::size_t bytes) {
  auto transfer = std::make_unique<RecvTransfer>(*this, channel, bytes);
  transfer->copy_to(data);
  return transfer;
}

std::unique_ptr<Transfer> InprocTransport::recv_up_to(const Channel& channel, void* data, std::size_t most) {
  auto transfer = std::make_unique<RecvTransfer>(*this, channel, most);
  transfer->copy_to(data);
  transfer->take_shorter();
  return transfer;
}

std::unique_ptr<Transfer> InprocTransport::recv_reduce(const Channel& channel, void* out, const void* operand,
                                                       std::size_t count, DType dtype, ReduceOp op) {
  auto transfer = std::make_unique<RecvTransfer>(*this, channel, count * size_in_bytes(dtype));
  transfer->reduce_to(out, operand, count, dtype, op);
  return transfer;
}

bool InprocTransport::has_arrived(std::uint16_t communicator, std::uint8_t lane, int target) {
  Mailbox& box = mailbox_of(target);
  const std::uint64_t wanted = Mailbox::key({communicator, lane, 0, target});
  constexpr std::uint64_t kWithoutSource = (1U << 24) - 1;
  const std::lock_guard lock(box.mutex);
  return std::any_of(box.lines.begin(), box.lines.end(), [&](const auto& entry) {
    return (entry.first & kWithoutSource) == wanted && entry.second.receivers.empty() && !entry.second.sends.empty();
  });
}

}  // namespace farandole
