// SPDX-License-Identifier: Apache-2.0
// One-shot collectives: where a rank publishes its data, how its peers read the data, and when the inlined path falls
// back to an operation.
#include "shared_memory/one_shot.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "farandole/core/error.h"
#include "message_of.h"
#include "shared_memory/arrival.h"
#include "shared_memory/shm_operation.h"
#include "shm_ranks.h"

namespace farandole {
namespace {

using test::ShmRanks;
using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kRecordBytes = 40, kSlotBytes = 1024;
constexpr std::uint8_t kMark = 0xee;

std::uint8_t sent(int rank, std::size_t index) {
  return static_cast<std::uint8_t>(31 * rank + 7 * static_cast<int>(index % 100) + 1);
}

Bytes vector_of(int rank, std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = sent(rank, i);
  return bytes;
}

Call call_on(Collective collective, Bytes& input, Bytes& output, int root = -1) {
  Call call;
  call.collective = collective;
  call.input = {input.data(), input.size(), DType::kU8};
  call.output = {output.data(), output.size(), DType::kU8};
  call.root = root;
  return call;
}

/// Data that a rank has published in lane 0, as its peers see the data.
class Shown {
 public:
  Shown(ShmRanks& ranks, int rank) : host_(ranks.shm(1 - rank)), rank_(rank) {
    for (auto& word : record().payload) word.store(kMark * 0x0101010101010101ULL, std::memory_order_relaxed);
    std::memset(host_.layout().input_slot(rank_, 0, 0), kMark, kSlotBytes);
  }
  Bytes in_record(std::size_t bytes) const { return copy(record().payload.data(), bytes); }
  Bytes in_slot(std::size_t bytes) const { return copy(host_.layout().input_slot(rank_, 0, 0), bytes); }
  bool is_record_untouched() const { return is_mark(in_record(kRecordBytes)); }
  bool is_slot_untouched() const { return is_mark(in_slot(kSlotBytes)); }

 private:
  ArrivalRecord& record() const { return host_.layout().lane(rank_, 0).arrival; }
  static Bytes copy(const void* from, std::size_t bytes) {
    const auto* first = static_cast<const std::uint8_t*>(from);
    return {first, first + bytes};
  }
  static bool is_mark(const Bytes& bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte == kMark; });
  }

  ShmGroup& host_;
  const int rank_;
};

TEST(OneShot, ShowsUpTo40BytesInTheRecordElseInTheSlot) {
  ShmRanks ranks(2, kSlotBytes);
  ranks.connect();
  for (const std::size_t bytes : {std::size_t{1}, kRecordBytes - 1, kRecordBytes, kRecordBytes + 1, kSlotBytes}) {
    SCOPED_TRACE(bytes);
    Bytes input = vector_of(0, bytes), output(bytes);
    const Shown shown(ranks, 0);
    OneShot(ranks.shm(0), 0, PreparedCall(call_on(Collective::kAllreduce, input, output), 2)).publish_input();
    if (bytes <= kRecordBytes) {
      EXPECT_EQ(shown.in_record(bytes), input);
      EXPECT_TRUE(shown.is_slot_untouched());
    } else {
      EXPECT_EQ(shown.in_slot(bytes), input);
      EXPECT_TRUE(shown.is_record_untouched());
    }
    EXPECT_EQ(output, Bytes(bytes)) << "the output was written before the peers arrived";
  }
}

TEST(OneShot, PublishesOnlyTheDataThePeersNeed) {
  ShmRanks ranks(2, kSlotBytes);
  ranks.connect();
  // Allgather and gather: a rank publishes its own part, which fits the record although the whole does not.
  Bytes part = vector_of(0, 30), whole(60);
  for (const Collective collective : {Collective::kAllgather, Collective::kGather}) {
    const Shown shown(ranks, 0);
    OneShot(ranks.shm(0), 0, PreparedCall(call_on(collective, part, whole, 1), 2)).publish_input();
    EXPECT_EQ(shown.in_record(30), part);
    EXPECT_TRUE(shown.is_slot_untouched()) << name(collective);
  }
  // Broadcast and scatter: only the root publishes data.
  for (const Collective collective : {Collective::kBroadcast, Collective::kScatter}) {
    for (const int root : {0, 1}) {
      Bytes all = vector_of(0, 60), own(collective == Collective::kScatter ? 30 : 60);
      const Shown shown(ranks, 0);
      OneShot(ranks.shm(0), 0, PreparedCall(call_on(collective, all, own, root), 2)).publish_input();
      EXPECT_TRUE(shown.is_record_untouched()) << name(collective);
      EXPECT_EQ(shown.is_slot_untouched(), root == 1) << name(collective);
    }
  }
  Bytes nothing;
  const Shown shown(ranks, 0);
  OneShot(ranks.shm(0), 0, PreparedCall(call_on(Collective::kBarrier, nothing, nothing), 2)).publish_input();
  EXPECT_TRUE(shown.is_record_untouched() && shown.is_slot_untouched());
}

TEST(OneShot, ShowsScaledDataAndKeepsTheInput) {
  ShmRanks ranks(2, kSlotBytes);
  ranks.connect();
  for (const std::size_t count : {std::size_t{5}, std::size_t{100}}) {
    std::vector<float> input(count, 3.0F), output(count);
    Call call;
    call.collective = Collective::kAllreduce;
    call.input = {input.data(), count, DType::kF32};
    call.output = {output.data(), count, DType::kF32};
    call.prescale = 0.5;
    const Shown shown(ranks, 0);
    OneShot(ranks.shm(0), 0, PreparedCall(call, 2)).publish_input();
    const Bytes bytes = count == 5 ? shown.in_record(20) : shown.in_slot(400);
    std::vector<float> found(count);
    std::memcpy(found.data(), bytes.data(), bytes.size());
    EXPECT_EQ(found, std::vector<float>(count, 1.5F));
    EXPECT_EQ(input, std::vector<float>(count, 3.0F));
  }
}

TEST(OneShot, ScaledDataIsCorrectIfOutputOverlapsInput) {
  for (const std::size_t count : {std::size_t{5}, std::size_t{100}}) {
    for (const std::size_t behind : {std::size_t{0}, std::size_t{1}, count}) {
      ShmRanks ranks(2, kSlotBytes);
      ranks.connect();
      std::vector<std::vector<float>> memory(2, std::vector<float>(2 * count + 1, 0.0F));
      std::vector<Call> calls(2);
      for (std::size_t rank = 0; rank < 2; ++rank) {
        for (std::size_t i = 0; i < count; ++i) memory[rank][i] = static_cast<float>((10 * rank) + i);
        calls[rank].collective = Collective::kAllreduce;
        calls[rank].input = {memory[rank].data(), count, DType::kF32};
        calls[rank].output = {memory[rank].data() + behind, count, DType::kF32};
        calls[rank].prescale = 0.5;
      }
      std::vector<float> wanted(count);
      for (std::size_t i = 0; i < count; ++i)
        wanted[i] = 0.5F * static_cast<float>(i) + 0.5F * static_cast<float>(10 + i);
      OneShot first(ranks.shm(0), 0, PreparedCall(calls[0], 2)), second(ranks.shm(1), 0, PreparedCall(calls[1], 2));
      first.publish_input();
      second.publish_input();
      first.compute_result();
      second.compute_result();
      for (std::size_t rank = 0; rank < 2; ++rank) {
        const auto from = memory[rank].begin() + static_cast<std::ptrdiff_t>(behind);
        EXPECT_EQ(std::vector<float>(from, from + static_cast<std::ptrdiff_t>(count)), wanted)
            << count << ' ' << behind;
      }
    }
  }
}

/// Position of the output's begin relative to the input.
enum class Lies { kElsewhere, kOnIt, kBehind, kBefore };

struct Case {
  Collective collective;
  std::size_t total;  ///< elements of the whole vector
  Lies lies;
  bool uneven;
  int root;
};

std::string text_of_case(const Case& tried, int rank, int size) {
  return fmt::format("{} of {}, output {}, uneven {}, root {}, rank {} of {}", name(tried.collective), tried.total,
                     static_cast<int>(tried.lies), tried.uneven, tried.root, rank, size);
}

/// One rank's memory of a call: input and output in one piece, and guards around them.
class Trial {
 public:
  Trial(const Case& tried, int rank, int size) : case_(tried), rank_(rank), size_(static_cast<std::size_t>(size)) {
    lay_out_parts();
    const auto own = static_cast<std::size_t>(rank);
    const bool gathers = is(Collective::kAllgather) || is(Collective::kGather);
    const bool scatters = is(Collective::kReduceScatter) || is(Collective::kScatter);
    const bool of_root = is(Collective::kReduce) || is(Collective::kGather);
    std::size_t in = gathers ? parts_[own] : firsts_.back(), out = scatters ? parts_[own] : firsts_.back();
    if (is(Collective::kScatter) && rank != case_.root) in = 0;
    if (of_root && rank != case_.root) out = 0;
    const std::size_t input = kGuard + 1;
    std::size_t output = input;
    if (!is(Collective::kBroadcast) && case_.lies == Lies::kElsewhere) output += in + kGuard;
    if (!is(Collective::kBroadcast) && case_.lies == Lies::kBehind) ++output;
    if (!is(Collective::kBroadcast) && case_.lies == Lies::kBefore) --output;
    memory_.assign(std::max(input + in, output + out) + kGuard, kMark);
    for (std::size_t i = 0; i < in; ++i) memory_[input + i] = sent(rank, i);
    wanted_ = memory_;
    for (std::size_t i = 0; i < out; ++i) wanted_[output + i] = result(i);
    call_.collective = case_.collective;
    call_.root = case_.root;
    call_.input = {memory_.data() + input, in, DType::kU8};
    call_.output = {memory_.data() + output, out, DType::kU8};
    if (case_.uneven) call_.counts = parts_;
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  const Call& call() const { return call_; }
  std::span<const std::size_t> firsts() const {
    return case_.uneven ? std::span<const std::size_t>(firsts_) : std::span<const std::size_t>();
  }
  /// Whether the output is right, and nothing else has changed.
  bool is_right() const { return memory_ == wanted_; }

 private:
  static constexpr std::size_t kGuard = 8;
  bool is(Collective collective) const { return case_.collective == collective; }

  void lay_out_parts() {
    std::size_t left = case_.total;
    for (std::size_t i = 0; i < size_; ++i) {
      std::size_t count = case_.total / size_;
      // Some ranks have no elements, and the last rank has the rest.
      if (case_.uneven) count = i + 1 == size_ ? left : i % 2 == 0 ? std::min(left, count + 2) : 0;
      left -= count;
      parts_.push_back(count);
    }
    const bool is_whole = is(Collective::kAllreduce) || is(Collective::kReduce) || is(Collective::kBroadcast);
    firsts_.assign(1, 0);
    for (const std::size_t count : parts_) firsts_.push_back(firsts_.back() + count);
    if (is_whole) firsts_.back() = case_.total;
  }
  std::uint8_t sum(std::size_t index) const {
    unsigned sum = 0;
    for (std::size_t from = 0; from < size_; ++from) sum += sent(static_cast<int>(from), index);
    return static_cast<std::uint8_t>(sum);
  }
  std::uint8_t result(std::size_t index) const {
    const std::size_t first = firsts_[static_cast<std::size_t>(rank_)];
    switch (case_.collective) {
      case Collective::kReduceScatter:
        return sum(first + index);
      case Collective::kBroadcast:
        return sent(case_.root, index);
      case Collective::kScatter:
        return sent(case_.root, first + index);
      case Collective::kAllgather:
      case Collective::kGather:
      case Collective::kAlltoall: {
        const auto after = std::upper_bound(firsts_.begin(), firsts_.end(), index);
        const auto from = static_cast<std::size_t>(after - firsts_.begin()) - 1;
        const std::size_t place = index - firsts_[from];
        return sent(static_cast<int>(from), is(Collective::kAlltoall) ? first + place : place);
      }
      default:
        return sum(index);
    }
  }

  const Case case_;
  const int rank_;
  const std::size_t size_;
  std::vector<std::size_t> parts_, firsts_;
  Bytes memory_, wanted_;
  Call call_;
};

std::vector<Case> all_cases(std::size_t size) {
  std::vector<Case> cases;
  int k = 0;
  for (int c = 0; c < kCollectiveCount; ++c) {
    const auto collective = static_cast<Collective>(c);
    const bool may_be_uneven = collective == Collective::kReduceScatter || collective == Collective::kAllgather ||
                               collective == Collective::kGather || collective == Collective::kScatter;
    for (std::size_t total :
         {std::size_t{0}, std::size_t{1}, kRecordBytes - 1, kRecordBytes, kRecordBytes + 1, (kRecordBytes - 1) * size,
          kRecordBytes * size, (kRecordBytes + 1) * size, kSlotBytes - 1, kSlotBytes}) {
      if (collective == Collective::kBarrier) total = 0;
      for (const Lies lies : {Lies::kElsewhere, Lies::kOnIt, Lies::kBehind, Lies::kBefore}) {
        for (const bool uneven : {false, true}) {
          if (uneven && !may_be_uneven) continue;
          const bool has_root = is_rooted(collective);
          cases.push_back({collective, total, lies, uneven, has_root ? ++k % static_cast<int>(size) : -1});
        }
      }
    }
  }
  return cases;
}

void run_one_shot(ShmGroup& host, std::uint64_t number, const Call& call, std::span<const std::size_t> firsts) {
  const int lane = host.ledger().lane_of(number);
  const std::uint64_t previous = host.ledger().begin(lane, number);
  while (host.ledger().first_behind(previous) >= 0) std::this_thread::yield();
  OneShot one_shot(host, lane, PreparedCall(call, host.size()), firsts);
  one_shot.publish_input();
  publish_arrival(host, lane, number, /*digest=*/1);
  for (int peer = 0; peer < host.size(); ++peer) {
    while (peer != host.rank() && !has_arrived(host, lane, number, peer)) std::this_thread::yield();
  }
  one_shot.compute_result();
  host.ledger().end(lane);
}

TEST(OneShot, ThreadsGetEveryResultForAllOverlaps) {
  for (const int size : {2, 3, 4, 5}) {
    ShmRanks ranks(size, kSlotBytes);
    const std::vector<Case> cases = all_cases(static_cast<std::size_t>(size));
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        while (!ranks.shm(rank).connect()) std::this_thread::yield();
        std::uint64_t sequence = 0;
        for (const Case& tried : cases) {
          const Trial trial(tried, rank, size);
          run_one_shot(ranks.shm(rank), LaneLedger::first_number(++sequence), trial.call(), trial.firsts());
          EXPECT_TRUE(trial.is_right()) << text_of_case(tried, rank, size);
        }
      });
    }
  }
}

/// Two ranks on this thread, each with an allreduce of `count` elements. Operations have these numbers, which
/// alternate between the lanes.
constexpr std::uint64_t kFirst = LaneLedger::first_number(1), kSecond = LaneLedger::first_number(2),
                        kThird = LaneLedger::first_number(3);
class Pair {
 public:
  Pair() : ranks_(2, kSlotBytes) {}
  ShmRanks& ranks() { return ranks_; }

  Attempt try_on(int rank, std::uint64_t number, std::size_t count = 10) {
    Endpoint& endpoint = *ranks_.group(rank).endpoint;
    Waiter waiter(endpoint.progress().doorbell(), {.oversubscribed = true});
    Side& side = prepare(rank, count);
    return try_one_shot(ranks_.shm(rank), number, *side.prepared, waiter);
  }
  /// The operation that continues a call after the inlined path has given up.
  std::unique_ptr<ShmOperation> operation(int rank, std::uint64_t number, bool has_arrived) {
    Side& side = sides_[rank];
    return std::make_unique<ShmOperation>(ranks_.group(rank), ranks_.shm(rank), *side.prepared, number,
                                          ShmOperation::Purpose::kCollective, has_arrived);
  }
  bool has_sum(int rank) const {
    const Side& side = sides_[rank];
    for (std::size_t i = 0; i < side.output.size(); ++i) {
      if (side.output[i] != static_cast<std::uint8_t>(sent(0, i) + sent(1, i))) return false;
    }
    return true;
  }
  std::uint64_t shown_number(int rank, std::uint64_t number) {
    ShmGroup& peer = ranks_.shm(1 - rank);
    return peer.layout().lane(rank, peer.ledger().lane_of(number)).arrival.number.load();
  }

 private:
  struct Side {
    Bytes input, output;
    Call call;
    std::optional<PreparedCall> prepared;
  };
  Side& prepare(int rank, std::size_t count) {
    Side& side = sides_[rank];
    side.input = vector_of(rank, count);
    side.output.assign(count, 0);
    side.call = call_on(Collective::kAllreduce, side.input, side.output);
    PreparedCall& prepared = side.prepared.emplace(side.call, 2);
    prepared.descriptor.collective = Collective::kAllreduce;
    prepared.descriptor.count = count;
    return side;
  }

  ShmRanks ranks_;
  Side sides_[2];
};

TEST(TryOneShot, IsANoOpBeforeTheRanksAreConnected) {
  Pair pair;
  EXPECT_EQ(pair.try_on(0, kFirst), Attempt::kNotBegun);
  pair.ranks().connect();
  EXPECT_EQ(pair.shown_number(0, kFirst), 0U) << "it has arrived all the same";
}

TEST(TryOneShot, FirstRankFallsBackToOperation) {
  Pair pair;
  pair.ranks().connect();
  EXPECT_EQ(pair.try_on(0, kFirst), Attempt::kPublished);
  EXPECT_EQ(pair.shown_number(0, kFirst), kFirst);
  EXPECT_EQ(pair.try_on(1, kFirst), Attempt::kDone);
  EXPECT_TRUE(pair.has_sum(1));
  EXPECT_FALSE(pair.has_sum(0));
  EXPECT_EQ(pair.operation(0, kFirst, /*has_arrived=*/true)->advance(), Operation::State::kDone);
  EXPECT_TRUE(pair.has_sum(0));
  EXPECT_EQ(pair.ranks().shm(0).ledger().completed(), kFirst);
}

TEST(TryOneShot, MismatchFallsBackToOperation) {
  Pair pair;
  pair.ranks().connect();
  EXPECT_EQ(pair.try_on(0, kFirst, 10), Attempt::kPublished);
  EXPECT_EQ(pair.try_on(1, kFirst, 11), Attempt::kPublished);
  std::vector<std::unique_ptr<ShmOperation>> operations;
  for (const int rank : {0, 1}) {
    operations.push_back(pair.operation(rank, kFirst, /*has_arrived=*/true));
    EXPECT_EQ(operations.back()->advance(), Operation::State::kMoved) << "it describes its call";
  }
  for (const auto& operation : operations) {
    const std::string text = test::message_of<Mismatch>([&] { (void)operation->advance(); });
    EXPECT_NE(text.find("10"), std::string::npos) << text;
    EXPECT_NE(text.find("11"), std::string::npos) << text;
  }
  EXPECT_FALSE(pair.has_sum(0) || pair.has_sum(1));
}

TEST(TryOneShot, DoesNotWaitForALaneInUse) {
  Pair pair;
  pair.ranks().connect();
  EXPECT_EQ(pair.try_on(1, kFirst), Attempt::kPublished);
  EXPECT_EQ(pair.try_on(0, kFirst), Attempt::kDone);
  // Rank 1 has not completed the first operation, so rank 1 may still read rank 0's data in that lane. The third
  // operation uses the same lane.
  EXPECT_EQ(pair.try_on(0, kSecond), Attempt::kPublished);
  EXPECT_EQ(pair.try_on(0, kThird), Attempt::kNotBegun);
  EXPECT_EQ(pair.shown_number(0, kThird), kFirst);
}

}  // namespace
}  // namespace farandole
