// SPDX-License-Identifier: Apache-2.0
#include "negotiation_exchange.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/communicator_access.h"

namespace farandole {

NegotiationExchange::NegotiationExchange(Communicator control, Communicator& data)
    : control_(std::move(control)),
      // Recursive doubling replaces the vendor's allreduce, which would not show that a peer has begun.
      algorithm_(internals(control_).settings().collectives.allreduce == "vendor" ? "recursive_doubling" : ""),
      bytes_{1} {
  // `peer_has_begun` works only after the first collective on the control communicator. The ranks first synchronise on
  // the data communicator, because that is watched for stalls and the control communicator is not.
  data.barrier();
  control_.allreduce(bytes_, ReduceOp::kMin, {.algorithm = algorithm_});
}

void NegotiationExchange::begin(std::span<const std::uint8_t> bytes, Clock::time_point now) {
  bytes_.assign(bytes.begin(), bytes.end());
  running_ = control_.allreduce_async(bytes_, ReduceOp::kMin, {.algorithm = algorithm_});
  phase_ = Phase::kBytes;
  since_ = now;
}

std::optional<Negotiator::Outcome> NegotiationExchange::advance(Negotiator& negotiator, Clock::time_point now) {
  if (!running_.test()) return std::nullopt;
  running_.wait();
  switch (std::exchange(phase_, Phase::kIdle)) {
    case Phase::kBytes: {
      auto outcome = negotiator.receive(bytes_, now);
      if (outcome.needs_announcements) gather_lengths(negotiator.announcements());
      return outcome;
    }
    case Phase::kLengths:
      gather_announcements();
      return Negotiator::Outcome{};
    default:
      return negotiator.receive_announcements(gathered(), now);
  }
}

void NegotiationExchange::gather_lengths(const std::string& announcements) {
  own_ = announcements;
  own_length_ = {static_cast<std::int64_t>(own_.size())};
  lengths_.assign(static_cast<std::size_t>(control_.size()), 0);
  running_ = control_.allgather_async(own_length_, lengths_);
  phase_ = Phase::kLengths;
}

void NegotiationExchange::gather_announcements() {
  const auto wrong = std::find_if(lengths_.begin(), lengths_.end(),
                                  [](std::int64_t bytes) { return bytes < 0 || bytes > Announcements::kMaxBytes; });
  if (wrong != lengths_.end()) {
    throw TransportError(fmt::format("{} announces {} bytes about its requests; at most {} are possible",
                                     control_.describe(static_cast<int>(wrong - lengths_.begin())), *wrong,
                                     Announcements::kMaxBytes));
  }
  counts_.assign(lengths_.begin(), lengths_.end());
  all_.resize(std::accumulate(counts_.begin(), counts_.end(), std::size_t{0}));
  running_ = control_.allgather_async(ConstBufferView(own_.data(), own_.size(), DType::kU8),
                                      BufferView(all_.data(), all_.size(), DType::kU8), counts_);
  phase_ = Phase::kAnnouncements;
}

std::vector<std::string> NegotiationExchange::gathered() const {
  std::vector<std::string> announcements;
  std::size_t first = 0;
  for (const std::size_t bytes : counts_) {
    announcements.push_back(all_.substr(first, bytes));
    first += bytes;
  }
  return announcements;
}

void NegotiationExchange::give_up() {
  phase_ = Phase::kIdle;
  running_ = {};
}

}  // namespace farandole
