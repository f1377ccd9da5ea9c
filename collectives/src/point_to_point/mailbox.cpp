// SPDX-License-Identifier: Apache-2.0
#include "point_to_point/mailbox.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace farandole {
namespace {

bool may_come_from(const Message& receive, int source) {
  return receive.peer().value_or(source) == source;
}

bool matches(const Message& receive, int source, const MessageHeader& header) {
  return receive.spec.tag == header.tag && receive.spec.space == header.space && may_come_from(receive, source);
}

}  // namespace

std::optional<ArrivedMessage> Mailbox::take_or_await(const std::shared_ptr<Message>& receive) {
  const auto found = std::find_if(arrivals_.begin(), arrivals_.end(), [&](const ArrivedMessage& arrival) {
    return matches(*receive, arrival.source, arrival.header);
  });
  if (found == arrivals_.end()) {
    receives_.push_back(receive);
    return std::nullopt;
  }
  ArrivedMessage taken = std::move(*found);
  arrivals_.erase(found);
  return taken;
}

std::shared_ptr<Message> Mailbox::take_receive(int source, const MessageHeader& header) {
  const auto found = std::find_if(receives_.begin(), receives_.end(),
                                  [&](const auto& receive) { return matches(*receive, source, header); });
  if (found == receives_.end()) return nullptr;
  std::shared_ptr<Message> taken = std::move(*found);
  receives_.erase(found);
  return taken;
}

std::string Mailbox::describe_others(const Message& receive) const {
  constexpr std::size_t kMaxNamed = 4;
  std::string text;
  std::size_t named = 0;
  for (const ArrivedMessage& arrival : arrivals_) {
    const MessageHeader& header = arrival.header;
    if (header.space != receive.spec.space || !may_come_from(receive, arrival.source)) continue;
    if (named++ == kMaxNamed) return text + ", …";
    text += fmt::format("{}{} {} with tag {} from rank {}", text.empty() ? "" : ", ", header.count, name(header.dtype),
                        header.tag, arrival.source);
  }
  return text;
}

}  // namespace farandole
