#include "host_operation.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>

#include "farandole/core/copy.h"
#include "farandole/core/error.h"
#include "farandole/core/reduce.h"
#include "host_allreduce.h"

namespace farandole {
namespace {

constexpr std::size_t kLineBytes = 128;

std::vector<std::size_t> running_sum(const std::vector<std::size_t>& counts) {
  std::vector<std::size_t> firsts(counts.size() + 1, 0);
  std::partial_sum(counts.begin(), counts.end(), firsts.begin() + 1);
  return firsts;
}

bool reduces_whole(Collective collective) {
  return collective == Collective::kAllreduce || collective == Collective::kReduce;
}

bool has_counts(Collective collective) {
  return collective == Collective::kAllgather || collective == Collective::kGather ||
         collective == Collective::kReduceScatter || collective == Collective::kScatter ||
         collective == Collective::kAlltoall;
}

/// Collectives in which a rank's input is its own chunk only.
bool owns_input(Collective collective) {
  return collective == Collective::kAllgather || collective == Collective::kGather;
}
/// Collectives in which a rank's output is its own chunk only.
bool owns_output(Collective collective) {
  return collective == Collective::kReduceScatter || collective == Collective::kScatter;
}

}  // namespace

HostOperation::HostOperation(const Group& group, HostGroup& host, const Call& call, const Descriptor& descriptor,
                             std::uint64_t number, Purpose purpose, bool entered)
    : group_(group),
      host_(host),
      call_(call),
      purpose_(purpose),
      entered_(entered),
      number_(number),
      lane_(static_cast<int>(number / 2 % kLanes)),
      element_bytes_(size_in_bytes(call.input.dtype)),
      total_(total_count(call)),
      descriptor_(descriptor),
      counted_(purpose == Purpose::kCollective && call.collective == Collective::kAlltoall && call.uneven),
      input_(static_cast<const std::byte*>(call.input.data)),
      output_(static_cast<std::byte*>(call.output.data)),
      // Here, because operations are made in the order of their numbers: an earlier one that began after a later one
      // had ended would have counted as complete.
      previous_(host.begin(lane_, number)) {
  // Ranks that lost count of each other are told apart as well.
  descriptor_.digest = mix(descriptor_.digest, number);
  digest_ = digest_of(descriptor, number);
  if (purpose == Purpose::kComparison) return;
  stages_own_ = reduces(call.collective) && call.prescale != 1.0;
  const bool at_once = bytes(total_) <= host.at_once_bytes() && !counted_;
  in_payload_ = at_once && call.collective == Collective::kAllreduce && bytes(total_) <= kPayloadBytes;
  if (has_counts(call.collective)) firsts_ = running_sum(call.counts);
  if (call.collective == Collective::kAlltoall) recv_firsts_ = running_sum(call.recv_counts);
  if (!at_once) return;
  plan_ = HostPlan(facts(true));
  cut_into_parts();
  if (plan_.parts() > 1) plan_ = HostPlan();  // very uneven
}

HostOperation::~HostOperation() {
  host_.end(lane_);
}

Operation::State HostOperation::advance() {
  switch (phase_) {
    case Phase::kConnect:
      if (!host_.connect()) return State::kWaiting;
      phase_ = Phase::kFree;
      [[fallthrough]];
    case Phase::kFree:
      if (entered_) {
        if (plan_.at_once()) take(step_);
      } else {
        if (host_.first_behind(previous_) >= 0) return State::kWaiting;
        enter();
      }
      phase_ = Phase::kEnter;
      [[fallthrough]];
    case Phase::kEnter:
      if (!hear_others()) return State::kWaiting;
      if (group_.endpoint->settings().check) {
        if (!is_alike()) {
          describe_call();
          phase_ = Phase::kDescribe;
          return State::kMoved;
        }
        if (counted_) compare_counts();
      }
      if (purpose_ == Purpose::kComparison) {
        phase_ = Phase::kDone;
        return State::kDone;
      }
      if (!plan_.at_once()) choose_way();
      phase_ = Phase::kRun;
      [[fallthrough]];
    case Phase::kRun:
      if (taken_ < plan_.steps()) {
        if (!is_ready(step_)) return State::kWaiting;
        run(step_);
        if (taken_ < plan_.steps() || plan_.touches_buffers()) return State::kMoved;
      }
      phase_ = Phase::kLeave;
      [[fallthrough]];
    case Phase::kLeave:
      if (plan_.steps() > 0 && plan_.touches_buffers() && !all_reached(plan_.steps(), -1)) return State::kWaiting;
      phase_ = Phase::kDone;
      break;
    case Phase::kDescribe:
      if (!hear_descriptions()) return State::kWaiting;
      compare();
      break;
    case Phase::kDone:
      break;
  }
  return State::kDone;
}

/// Publishes the call, and where it is small the data with it.
void HostOperation::enter() {
  EntryLine& mine = entry(host_.rank());
  mine.digest.store(digest_, std::memory_order_relaxed);
  mine.completed.store(host_.completed(), std::memory_order_relaxed);
  if (in_payload_) {
    Payload scaled{};
    if (stages_own_) scale(scaled.data(), input_, total_, call_.input.dtype, call_.prescale);
    store_payload(mine, stages_own_ ? static_cast<const void*>(scaled.data()) : input_, bytes(total_));
    take(step_);
  } else if (plan_.at_once()) {
    // What the others read is there before they look.
    if (plan_.steps() > 0) run(step_);
  } else if (purpose_ == Purpose::kCollective) {
    const bool readable = !stages_own_ && !is_exchange_in_place();
    mine.input.store(readable ? host_.locate(input_, call_.input.size_in_bytes()) : HostGroup::kUnreachable,
                     std::memory_order_relaxed);
    mine.output.store(host_.locate(output_, call_.output.size_in_bytes()), std::memory_order_relaxed);
    if (counted_) {
      auto* counts = reinterpret_cast<std::uint64_t*>(host_.result_slot(host_.rank(), lane_, 0));
      std::copy(call_.recv_counts.begin(), call_.recv_counts.end(),
                std::copy(call_.counts.begin(), call_.counts.end(), counts));
    }
  }
  mine.number.store(number_, std::memory_order_seq_cst);
  host_.nudge();
}

bool HostOperation::hear_others() {
  for (; cursor_ < host_.size(); ++cursor_) {
    if (cursor_ == host_.rank()) continue;
    EntryLine& line = entry(cursor_);
    if (line.number.load(std::memory_order_acquire) != number_) return false;
    host_.heard(cursor_, line.completed.load(std::memory_order_relaxed));
  }
  cursor_ = 0;
  return true;
}

/// True if all ranks called the same, and it can work.
bool HostOperation::is_alike() const {
  for (int local = 0; local < host_.size(); ++local) {
    if (entry(local).digest.load(std::memory_order_relaxed) != digest_) return false;
  }
  return descriptor_.algorithm != Descriptor::kRefused;
}

/// Every rank sees the same digests, so all of them come here or none.
void HostOperation::describe_call() {
  EntryLine& mine = entry(host_.rank());
  const auto words = std::bit_cast<std::array<std::uint64_t, 3>>(descriptor_);
  for (std::size_t i = 0; i < words.size(); ++i) mine.descriptor[i].store(words[i], std::memory_order_relaxed);
  mine.described.store(number_, std::memory_order_seq_cst);
  host_.nudge();
}

bool HostOperation::hear_descriptions() {
  for (; cursor_ < host_.size(); ++cursor_) {
    if (entry(cursor_).described.load(std::memory_order_acquire) != number_) return false;
  }
  return true;
}

/// Says who called what.
void HostOperation::compare() const {
  std::vector<Descriptor> called;
  for (int local = 0; local < host_.size(); ++local) {
    std::array<std::uint64_t, 3> words{};
    for (std::size_t i = 0; i < words.size(); ++i) {
      words[i] = entry(local).descriptor[i].load(std::memory_order_relaxed);
    }
    called.push_back(std::bit_cast<Descriptor>(words));
  }
  for (int local = 1; local < host_.size(); ++local) {
    const Descriptor& other = called[static_cast<std::size_t>(local)];
    if (std::memcmp(&called[0], &other, sizeof other) == 0) continue;
    throw_mismatch(group_, host_.member(0), called[0], host_.member(local), other);
  }
  throw_refused(called[0]);
}

void HostOperation::compare_counts() const {
  for (int from = 0; from < host_.size(); ++from) {
    const auto sent = counts_of(from, true);
    for (int to = 0; to < host_.size(); ++to) {
      const std::uint64_t sends = sent[static_cast<std::size_t>(to)];
      const std::uint64_t expects = counts_of(to, false)[static_cast<std::size_t>(from)];
      if (sends == expects) continue;
      throw Mismatch(
          fmt::format("alltoall: rank {} sends {} elements to rank {}, which expects {}; no data was touched",
                      host_.member(from), sends, host_.member(to), expects));
    }
  }
}

std::span<const std::uint64_t> HostOperation::counts_of(int local, bool sent) const {
  const auto size = static_cast<std::size_t>(host_.size());
  const auto* counts = reinterpret_cast<const std::uint64_t*>(host_.result_slot(local, lane_, 0));
  return {counts + (sent ? 0 : size), size};
}

HostFacts HostOperation::facts(bool at_once) const {
  HostFacts facts{call_.collective, host_.size(), call_.root, at_once, false, false};
  if (at_once) return facts;
  facts.reaches_inputs = facts.reaches_outputs = true;
  const bool input_of_root = call_.collective == Collective::kBroadcast || call_.collective == Collective::kScatter;
  const bool output_of_root = call_.collective == Collective::kReduce || call_.collective == Collective::kGather;
  for (int local = 0; local < host_.size(); ++local) {
    const bool input = entry(local).input.load(std::memory_order_relaxed) != HostGroup::kUnreachable;
    const bool output = entry(local).output.load(std::memory_order_relaxed) != HostGroup::kUnreachable;
    if (!input_of_root || local == call_.root) facts.reaches_inputs = facts.reaches_inputs && input;
    if (!output_of_root || local == call_.root) facts.reaches_outputs = facts.reaches_outputs && output;
  }
  return facts;
}

bool HostOperation::is_exchange_in_place() const {
  return call_.collective == Collective::kAlltoall && call_.input.data == call_.output.data;
}

void HostOperation::choose_way() {
  if (counted_ && is_exchange_in_place() && call_.input.count > 0) {
    // A part of the output may lie where a later part of the input still is.
    original_ = Scratch(call_.input.size_in_bytes());
    std::memcpy(original_.data(), input_, call_.input.size_in_bytes());
    input_ = original_.data();
  }
  plan_ = HostPlan(facts(false));
  cut_into_parts();
}

void HostOperation::cut_into_parts() {
  const auto size = static_cast<std::size_t>(host_.size());
  std::size_t largest = 0;
  for (int owner = 0; owner < host_.size(); ++owner) largest = std::max(largest, chunk(owner).count);
  if (counted_) {
    for (int local = 0; local < host_.size(); ++local) {
      const auto sent = counts_of(local, true);
      largest = std::max(largest, static_cast<std::size_t>(*std::max_element(sent.begin(), sent.end())));
    }
  }
  const bool shares_slot = plan_.uses(HostStage::kIn) && !(plan_.at_once() && reduces_whole(call_.collective));
  quantum_ = host_.slot_bytes() / (shares_slot ? size : 1) / kLineBytes * kLineBytes / element_bytes_;
  plan_.set_parts((largest + quantum_ - 1) / quantum_);
  step_ = plan_.first();
  // Inputs and outputs of the ranks do not fit the caches together; in place, the lines are there already.
  streams_ = call_.input.data != call_.output.data && bytes(total_) > last_level_cache_bytes() / 4;
}

bool HostOperation::is_ready(const HostPlan::Step& step) {
  const auto [stage, part] = step;
  if (!plan_.is_active(stage, host_.rank())) return true;
  // The memory that this stage writes is free again...
  const auto reader = static_cast<HostStage>(static_cast<int>(stage) + 1);
  const bool reused = stage != HostStage::kOut && plan_.uses(reader) && part >= HostGroup::kSlots;
  if (reused && !all_reached(plan_.done_after(reader, part - HostGroup::kSlots), -1)) return false;
  // ...and what it reads has been written.
  if (plan_.at_once() || stage == HostStage::kIn) return true;
  const auto writer = static_cast<HostStage>(static_cast<int>(stage) - 1);
  return !plan_.uses(writer) || all_reached(plan_.done_after(writer, part), plan_.source(stage));
}

/// True once the others (or `only` that one) have taken so many steps.
bool HostOperation::all_reached(std::uint64_t steps, int only) {
  const std::uint64_t wanted = (number_ << kStepBits) + steps;
  for (int local = 0; local < host_.size(); ++local) {
    if (local == host_.rank() || (only >= 0 && local != only)) continue;
    if (host_.lane(local, lane_).progress.load(std::memory_order_acquire) < wanted) {
      cursor_ = local;
      return false;
    }
  }
  return true;
}

void HostOperation::run(const HostPlan::Step& step) {
  if (plan_.is_active(step.stage, host_.rank())) {
    switch (step.stage) {
      case HostStage::kIn:
        copy_in(step.part);
        break;
      case HostStage::kMiddle:
        if (reduces(call_.collective)) {
          in_payload_ ? combine_payloads() : combine(step.part);
        } else if (call_.collective == Collective::kScatter || call_.collective == Collective::kAlltoall) {
          place(step.part);
        } else {
          publish(step.part);
        }
        break;
      case HostStage::kOut:
        copy_out(step.part);
        break;
    }
  }
  take(step);
  if (plan_.at_once()) return;
  HostBlock::Lane& mine = host_.lane(host_.rank(), lane_);
  mine.progress.store((number_ << kStepBits) + taken_, std::memory_order_seq_cst);
  host_.nudge();
}

void HostOperation::take(const HostPlan::Step& step) {
  ++taken_;
  step_ = plan_.after(step);
}

HostOperation::Extent HostOperation::chunk(int owner) const {
  if (call_.collective == Collective::kBroadcast) return owner == call_.root ? Extent{0, total_} : Extent{};
  if (!firsts_.empty()) {
    const auto index = static_cast<std::size_t>(owner);
    return {firsts_[index], firsts_[index + 1] - firsts_[index]};
  }
  if (plan_.at_once()) return {0, total_};
  // Whole lines, so that ranks do not write to the same one.
  const std::size_t line = std::max<std::size_t>(1, kLineBytes / element_bytes_);
  const auto size = static_cast<std::size_t>(host_.size());
  const std::size_t each = ((total_ + size - 1) / size + line - 1) / line * line;
  const std::size_t first = std::min(total_, static_cast<std::size_t>(owner) * each);
  return {first, std::min(each, total_ - first)};
}

HostOperation::Extent HostOperation::part_of(Extent whole, std::size_t part) const {
  const std::size_t skipped = std::min(whole.count, part * quantum_);
  return {whole.first + skipped, std::min(quantum_, whole.count - skipped)};
}

/// Where `from` has put the part of `owner`'s chunk.
const std::byte* HostOperation::staged_chunk(int from, int owner, std::size_t part) const {
  const bool whole = plan_.at_once() && reduces_whole(call_.collective);
  const std::size_t index = whole ? 0 : static_cast<std::size_t>(owner);
  return host_.input_slot(from, lane_, part) + bytes(index * quantum_);
}

std::byte* HostOperation::peer_buffer(int local, bool input, std::size_t element) const {
  const EntryLine& line = entry(local);
  return host_.reach(local, (input ? line.input : line.output).load(std::memory_order_relaxed)) + bytes(element);
}

void HostOperation::copy_to_output(std::byte* to, const std::byte* from, std::size_t bytes) const {
  if (to == from || bytes == 0) return;
  if (streams_) {
    copy_streaming(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

void HostOperation::copy_in(std::size_t part) {
  const bool whole = plan_.at_once() && reduces_whole(call_.collective);
  for (int owner = 0; owner < host_.size(); ++owner) {
    if (whole && owner > 0) break;
    if (!whole && owner == host_.rank() && !stages_own_) continue;
    const Extent from = part_of(chunk(owner), part);
    auto* to = const_cast<std::byte*>(staged_chunk(host_.rank(), owner, part));
    if (from.count == 0) continue;
    if (stages_own_) {
      scale(to, input(from.first), from.count, call_.input.dtype, call_.prescale);
    } else {
      std::memcpy(to, input(from.first), bytes(from.count));
    }
  }
}

void HostOperation::combine_payloads() {
  reduce_payloads(host_, lane_, {output_, total_, call_.output.dtype}, call_.op);
  const double factor = final_scale(call_, group_.size());
  if (factor != 1.0) scale(output_, output_, total_, call_.input.dtype, factor);
}

/// Reduces a part of the own chunk over all ranks.
void HostOperation::combine(std::size_t part) {
  const int me = host_.rank();
  const Extent at = part_of(chunk(me), part);
  if (at.count == 0) return;
  for (int local = 0; local < host_.size(); ++local) {
    const std::byte* from = nullptr;
    if (local == me && !stages_own_) {
      from = input(at.first);
    } else if (plan_.reads_inputs()) {
      from = peer_buffer(local, true, at.first);
    } else {
      from = staged_chunk(local, me, part);
    }
    host_.pointers()[static_cast<std::size_t>(local)] = from;
  }
  // Where the result goes to several places it is made in the first that stays in the cache.
  std::byte* target = nullptr;
  if (owns_output(call_.collective)) {
    target = output(at.first - chunk(me).first);
  } else if (plan_.uses(HostStage::kOut)) {
    target = host_.result_slot(me, lane_, part);
  } else if (call_.collective == Collective::kReduce && me != call_.root) {
    target = peer_buffer(call_.root, false, at.first);
  } else {
    target = output(at.first);
  }
  reduce_many(target, host_.pointers(), at.count, call_.input.dtype, call_.op);
  const double factor = final_scale(call_, group_.size());
  if (factor != 1.0) scale(target, target, at.count, call_.input.dtype, factor);
  spread(target, at);
}

void HostOperation::spread(const std::byte* result, Extent at) {
  const int me = host_.rank();
  if (owns_output(call_.collective) || plan_.at_once()) return;
  if (plan_.uses(HostStage::kOut)) {
    const bool keeps = call_.collective == Collective::kAllreduce || me == call_.root;
    if (keeps) copy_to_output(output(at.first), result, bytes(at.count));
    return;
  }
  if (call_.collective != Collective::kAllreduce) return;
  for (int local = 0; local < host_.size(); ++local) {
    if (local != me) std::memcpy(peer_buffer(local, false, at.first), result, bytes(at.count));
  }
}

/// Shows a part of the own chunk to the others, or writes it to them, and to the own output.
void HostOperation::publish(std::size_t part) {
  const int me = host_.rank();
  const Extent whole = chunk(me);
  const Extent at = part_of(whole, part);
  if (at.count == 0) return;
  const bool own_only = owns_input(call_.collective);
  const std::byte* from = input(own_only ? at.first - whole.first : at.first);
  const bool has_output = call_.collective == Collective::kAllgather || me == call_.root;
  if (plan_.uses(HostStage::kOut)) {
    std::memcpy(host_.result_slot(me, lane_, part), from, bytes(at.count));
  } else {
    for (int local = 0; local < host_.size(); ++local) {
      const bool is_target = call_.collective != Collective::kGather || local == call_.root;
      if (local != me && is_target) std::memcpy(peer_buffer(local, false, at.first), from, bytes(at.count));
    }
  }
  // At once, ranks have not compared their calls yet: outputs must stay as they are.
  if (has_output && !plan_.at_once()) copy_to_output(output(at.first), from, bytes(at.count));
}

/// Puts what the others have for this rank where it belongs.
void HostOperation::place(std::size_t part) {
  const int me = host_.rank();
  const bool all_to_all = call_.collective == Collective::kAlltoall;
  for (int local = 0; local < host_.size(); ++local) {
    if (!all_to_all && local != call_.root) continue;
    Extent to = all_to_all ? Extent{recv_firsts_[static_cast<std::size_t>(local)],
                                    call_.recv_counts[static_cast<std::size_t>(local)]}
                           : Extent{0, chunk(me).count};
    const std::size_t skipped = std::min(to.count, part * quantum_);
    to = {to.first + skipped, std::min(quantum_, to.count - skipped)};
    if (to.count == 0) continue;
    const std::byte* from = nullptr;
    if (local == me) {
      from = input(chunk(me).first + skipped);
    } else if (plan_.reads_inputs()) {
      std::size_t first = chunk(me).first;
      if (counted_) {
        const auto sent = counts_of(local, true);
        first = std::accumulate(sent.begin(), sent.begin() + me, std::size_t{0});
      }
      from = peer_buffer(local, true, first + skipped);
    } else {
      from = staged_chunk(local, me, part);
    }
    copy_to_output(output(to.first), from, bytes(to.count));
  }
}

/// Takes over what the others have published.
void HostOperation::copy_out(std::size_t part) {
  const int me = host_.rank();
  for (int owner = 0; owner < host_.size(); ++owner) {
    const Extent whole = chunk(owner);
    const Extent at = part_of(whole, part);
    if (at.count == 0 || (owner == me && plan_.uses(HostStage::kMiddle) && !plan_.at_once())) continue;
    const bool own_only = owns_input(call_.collective);
    const std::size_t element = own_only ? at.first - whole.first : at.first;
    const std::byte* from = host_.result_slot(owner, lane_, part);
    if (owner == me) {
      from = input(element);
    } else if (!plan_.uses(HostStage::kMiddle)) {
      from = peer_buffer(owner, true, element);
    }
    copy_to_output(output(at.first), from, bytes(at.count));
  }
}

std::vector<int> HostOperation::waits_for() const {
  std::vector<int> ranks;
  if (phase_ == Phase::kDone) return ranks;
  if (phase_ == Phase::kEnter) {
    for (int local = cursor_; local < host_.size(); ++local) {
      const bool entered = entry(local).number.load(std::memory_order_relaxed) == number_;
      if (local != host_.rank() && !entered) ranks.push_back(group_.member(host_.member(local)));
    }
    return ranks;
  }
  if (phase_ == Phase::kRun || phase_ == Phase::kLeave) return {group_.member(host_.member(cursor_))};
  for (int local = 0; local < host_.size(); ++local) {
    if (local != host_.rank()) ranks.push_back(group_.member(host_.member(local)));
  }
  return ranks;
}

}  // namespace farandole
