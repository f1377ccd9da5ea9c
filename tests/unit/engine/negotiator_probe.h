// SPDX-License-Identifier: Apache-2.0
// What tests see of a Negotiator that its users need not.
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
  /// What must be the same on all ranks after every negotiation. Of when slots were last used only the order counts.
  static std::string table(const Negotiator& n) {
    std::map<std::uint64_t, std::size_t> age;
    for (const auto& slot : n.slots_) age.emplace(slot.last_negotiation, 0);
    std::size_t next = 0;
    for (auto& [negotiation, place] : age) place = next++;
    std::string text;
    for (const auto& slot : n.slots_) {
      text += slot.spec ? fmt::format("[{} bucket {} broken {} age {} in step {}]", describe(*slot.spec), slot.bucket,
                                      slot.times_broken, age[slot.last_negotiation], slot.in_step)
                        : "[free]";
    }
    text += fmt::format(" free {}", fmt::join(n.free_slots_, ","));
    for (const auto& bucket : n.buckets_) text += fmt::format(" bucket {}", fmt::join(bucket.slots, ","));
    for (const auto& [name, announced] : n.by_name_) {
      text += fmt::format(" announced {} {}", name, announced.count);
      for (const auto& [spec, in_step] : announced.by_rank) {
        text += spec ? fmt::format(":{} in step {}", describe(*spec), in_step) : ":-";
      }
    }
    std::map<std::string, int> index(n.slot_of_.begin(), n.slot_of_.end());
    for (const auto& [name, slot] : index) text += fmt::format(" {}={}", name, slot);
    for (const bool joined : n.joined_) text += joined ? 'j' : '.';
    for (const bool left : n.left_) text += left ? 'l' : '.';
    if (std::find(n.joined_.begin(), n.joined_.end(), true) != n.joined_.end()) {
      text += fmt::format(" last {}", n.last_joined_);
    }
    return text + fmt::format(" closing {} departed {} generation {}", n.closing_, n.departed_ ? n.departed_->text : "",
                              n.generation_);
  }

  /// Everything else that decides what happens next.
  static std::string own(const Negotiator& n, Negotiator::Time now) {
    const auto ago = [&](Negotiator::Time since) {
      return std::min<std::int64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now - since).count(), 1000);
    };
    std::string text;
    for (const auto& [name, pending] : sorted(n)) {
      text += fmt::format(" {} slot {} announced {} waits {} in step {}", describe(*pending->spec), pending->slot,
                          pending->announced, static_cast<int>(pending->waiting), pending->in_step);
    }
    for (const auto* pending : n.unannounced_)
      text += fmt::format(" unannounced {} {}", pending->spec->name, ago(pending->since));
    for (const int held : n.held_buckets_) {
      text += fmt::format(" held {} {}", held, ago(n.buckets_[static_cast<std::size_t>(held)].since));
    }
    for (const auto& bucket : n.buckets_) text += fmt::format(" ready {}", bucket.ready);
    for (const std::uint8_t byte : n.bytes_) text += static_cast<char>('0' + byte);
    return text + fmt::format(" {} {} {} {} {} {} {} {} {}", n.unsent_ready_, n.announced_, n.join_unannounced_,
                              n.again_, static_cast<int>(n.departure_unannounced_), n.all_blocked_,
                              n.suspected_.has_value(), n.suspected_ ? ago(*n.suspected_) : 0,
                              n.standstill_unannounced_);
  }

  /// What does not fit together within one rank; empty if all does.
  static std::string contradiction(const Negotiator& n) {
    std::size_t announced = 0;
    for (const auto& [name, pending] : n.pending_) {
      if (pending.announced) ++announced;
      if (pending.spec->name != name) return "a request under another name than its own";
      const bool is_unannounced =
          std::find(n.unannounced_.begin(), n.unannounced_.end(), &pending) != n.unannounced_.end();
      if (pending.slot < 0) {
        if (is_unannounced == pending.announced) return name + " is to be announced, and has been";
        continue;
      }
      const auto& slot = n.slots_[static_cast<std::size_t>(pending.slot)];
      if (slot.pending != &pending || !slot.spec || *slot.spec != *pending.spec) return name + " is not in its slot";
      if (pending.in_step && !slot.in_step) return name + " is in a step, of which its slot knows nothing";
      const bool is_held =
          std::find(n.held_buckets_.begin(), n.held_buckets_.end(), slot.bucket) != n.held_buckets_.end();
      if (!pending.announced && !is_held) return name + " waits for nothing";
    }
    for (const auto* unannounced : n.unannounced_) {
      if (std::none_of(n.pending_.begin(), n.pending_.end(),
                       [&](const auto& each) { return &each.second == unannounced; })) {
        return "something is to be announced that is not pending";
      }
    }
    if (announced != n.announced_) return fmt::format("{} announced, {} announced", n.announced_, announced);
    return bucket_contradiction(n);
  }

 private:
  static std::map<std::string, const Negotiator::Pending*> sorted(const Negotiator& n) {
    std::map<std::string, const Negotiator::Pending*> pending;
    for (const auto& [name, each] : n.pending_) pending[name] = &each;
    return pending;
  }
  static std::string bucket_contradiction(const Negotiator& n) {
    for (std::size_t i = 0; i < n.buckets_.size(); ++i) {
      std::size_t ready = 0;
      for (const int index : n.buckets_[i].slots) {
        const auto& slot = n.slots_[static_cast<std::size_t>(index)];
        if (slot.bucket != static_cast<int>(i)) return fmt::format("slot {} is not in its bucket", index);
        if (slot.pending != nullptr) ++ready;
      }
      if (ready != n.buckets_[i].ready)
        return fmt::format("bucket {} counts {} instead of {}", i, n.buckets_[i].ready, ready);
    }
    for (std::size_t i = 0; i < n.slots_.size(); ++i) {
      const bool is_announced = n.bytes_[Negotiator::kHeaderBytes + i] != 0;
      const bool should = n.slots_[i].pending != nullptr && n.slots_[i].pending->announced;
      if (is_announced && !should) return fmt::format("slot {} is announced to be ready", i);
    }
    return {};
  }
};

}  // namespace farandole
