// SPDX-License-Identifier: Apache-2.0
// Access for tests to the private state of a Negotiator and its parts.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "negotiator.h"

namespace farandole {

class NegotiatorProbe {
 public:
  /// The state that must be equal on all ranks after every negotiation, as text.
  static std::string table(const Negotiator& n) {
    return table(n.slots_) + plan(n.planner_) + announced(n.announced_) + joins(n.joining_) +
           fmt::format(" generation {}", n.steps_.generation());
  }
  /// The slots as text. Only the order of their last uses is included, not the times.
  static std::string table(const SlotTable& slots) {
    std::map<std::uint64_t, std::size_t> age;
    for (const auto& slot : slots.slots_) age.emplace(slot.last_negotiation, 0);
    std::size_t next = 0;
    for (auto& [negotiation, place] : age) place = next++;
    std::string text;
    for (const auto& slot : slots.slots_) {
      text += slot.spec ? fmt::format("[{} age {} in step {}]", describe(*slot.spec), age[slot.last_negotiation],
                                      slot.in_step)
                        : "[free]";
    }
    text += fmt::format(" free {}", fmt::join(slots.free_, ","));
    const std::map<std::string, int> sorted(slots.slot_of_.begin(), slots.slot_of_.end());
    for (const auto& [name, slot] : sorted) text += fmt::format(" {}={}", name, slot);
    return text;
  }
  static std::string plan(const BucketPlanner& planner) {
    std::string text;
    for (const auto& member : planner.members_)
      text += fmt::format("[{} broken {}]", member.bucket, member.times_broken);
    for (const auto& bucket : planner.buckets_) text += fmt::format(" bucket {}", fmt::join(bucket.slots, ","));
    return text;
  }
  static std::string announced(const AnnouncedRequests& requests) {
    std::string text;
    for (const auto& [name, by_rank] : requests.by_name_) {
      text += fmt::format(" announced {}", name);
      for (const auto& [spec, in_step] : by_rank) {
        text += spec ? fmt::format(":{} in step {}", describe(*spec), in_step) : ":-";
      }
    }
    return text;
  }
  static std::string joins(const Joining& joining) {
    std::string text;
    for (const bool joined : joining.joined_) text += joined ? 'j' : '.';
    for (const bool left : joining.left_) text += left ? 'l' : '.';
    if (joining.has_any_joined()) text += fmt::format(" last {}", joining.last_joined_);
    return text +
           fmt::format(" closing {} departed {}", joining.closing_, joining.departed_ ? joining.departed_->text : "");
  }

  /// Everything else that decides what happens next.
  static std::string own(const Negotiator& n, Negotiator::Time now) {
    const auto ago = [&](Negotiator::Time since) {
      return std::min<std::int64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now - since).count(), 1000);
    };
    std::string text;
    for (const auto& [name, pending] : sorted(n.pending_)) {
      text += fmt::format(" {} slot {} announced {} waits {} in step {}", describe(*pending->spec), pending->slot,
                          pending->announced, static_cast<int>(pending->waiting), pending->in_step);
    }
    for (const auto* pending : n.pending_.unannounced_)
      text += fmt::format(" unannounced {} {}", pending->spec->name, ago(pending->since));
    for (const int held : n.planner_.held_) {
      text += fmt::format(" held {} {}", held, ago(n.planner_.buckets_[static_cast<std::size_t>(held)].since));
    }
    for (const auto& bucket : n.planner_.buckets_) text += fmt::format(" ready {}", bucket.submitted_count);
    for (const std::uint8_t byte : n.pending_.bytes_) text += static_cast<char>('0' + byte);
    const DeadlockDetector& waits = n.waits_;
    return text + fmt::format(" {} {} {} {} {} {} {} {}", n.pending_.unsent_, n.pending_.announced_,
                              n.joining_.join_unannounced_, static_cast<int>(n.joining_.departure_unannounced_),
                              waits.all_blocked_, waits.suspected_.has_value(),
                              waits.suspected_ ? ago(*waits.suspected_) : 0, waits.idle_unannounced_);
  }

  /// Describes an inconsistency within one rank; empty if there is none.
  static std::string contradiction(const Negotiator& n) {
    for (const auto& [name, pending] : n.pending_.requests_) {
      if (pending.slot < 0) continue;
      const auto& slot = n.slots_[pending.slot];
      if (!slot.spec || *slot.spec != *pending.spec) return name + " is not in its slot";
      if (pending.in_step && !slot.in_step) return name + " is in a step, of which its slot knows nothing";
      const auto& held = n.planner_.held_;
      const auto& member = n.planner_.members_[static_cast<std::size_t>(pending.slot)];
      const bool is_held = std::find(held.begin(), held.end(), member.bucket) != held.end();
      if (pending.announced == is_held) return name + (is_held ? " is held, and announced" : " waits for nothing");
    }
    for (std::size_t i = 0; i < n.slots_.size(); ++i) {
      if (n.planner_.members_[i].is_submitted != n.pending_.has(static_cast<int>(i))) {
        return fmt::format("slot {} is pending, or is not, and the planner thinks otherwise", i);
      }
    }
    const std::string of_pending = contradiction(n.pending_);
    return of_pending.empty() ? contradiction(n.planner_) : of_pending;
  }
  static std::string contradiction(const PendingRequests& requests) {
    std::size_t announced = 0;
    for (const auto& [name, pending] : requests.requests_) {
      if (pending.announced) ++announced;
      if (pending.spec->name != name) return "a request under another name than its own";
      const auto& unannounced = requests.unannounced_;
      const bool is_unannounced = std::find(unannounced.begin(), unannounced.end(), &pending) != unannounced.end();
      if (is_unannounced != (pending.slot < 0 && !pending.announced)) return name + " is to be announced, and has been";
      if (pending.slot >= 0 && requests.in_slot_[static_cast<std::size_t>(pending.slot)] != &pending) {
        return name + " is not in its slot";
      }
    }
    for (const auto* unannounced : requests.unannounced_) {
      if (!is_pending(requests, unannounced)) return "something is to be announced that is not pending";
    }
    if (announced != requests.announced_)
      return fmt::format("{} announced, {} announced", requests.announced_, announced);
    for (std::size_t i = 0; i < requests.in_slot_.size(); ++i) {
      const auto* pending = requests.in_slot_[i];
      if (pending != nullptr && !is_pending(requests, pending)) return fmt::format("slot {} has what is over", i);
      if ((requests.bytes_[i] != 0) != (pending != nullptr && pending->announced)) {
        return fmt::format("slot {} is announced to be ready, or is ready without", i);
      }
    }
    return {};
  }
  static std::string contradiction(const BucketPlanner& planner) {
    for (std::size_t i = 0; i < planner.buckets_.size(); ++i) {
      const auto& [slots, submitted_count, since] = planner.buckets_[i];
      std::size_t count = 0;
      for (const int slot : slots) {
        const auto& member = planner.members_[static_cast<std::size_t>(slot)];
        if (member.bucket != static_cast<int>(i)) return fmt::format("slot {} is not in its bucket", slot);
        if (member.is_submitted) ++count;
      }
      if (count != submitted_count) return fmt::format("bucket {} counts {} instead of {}", i, submitted_count, count);
      if (slots.size() == 1) return fmt::format("bucket {} has one slot", i);
      const bool is_held = std::find(planner.held_.begin(), planner.held_.end(), i) != planner.held_.end();
      if (is_held && submitted_count == 0) return fmt::format("bucket {} is held, and empty", i);
    }
    return {};
  }

 private:
  static std::map<std::string, const PendingRequest*> sorted(const PendingRequests& requests) {
    std::map<std::string, const PendingRequest*> pending;
    for (const auto& [name, each] : requests.requests_) pending[name] = &each;
    return pending;
  }
  static bool is_pending(const PendingRequests& requests, const PendingRequest* pending) {
    return std::any_of(requests.requests_.begin(), requests.requests_.end(),
                       [&](const auto& each) { return &each.second == pending; });
  }
};

}  // namespace farandole
