// SPDX-License-Identifier: Apache-2.0
// Random requests by four ranks that are never in step: every result is exact, and all ranks learn of every
// disagreement.
//
// A seed that all ranks share determines the requests, in groups of a few requests. Each rank shuffles the requests of
// a group, and delays itself, by its own seed.
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "engine_harness.h"

namespace farandole::testing {
namespace {

constexpr int kRanks = 4;

/// One request as all ranks know it.
struct Operation {
  std::string name;
  Client::Options options;
  std::vector<int> members;         // of its process set
  std::vector<std::size_t> counts;  // elements of its tensors; of allgather and alltoall rows per rank and tensor
  int odd_rank = -1;                // submits something else, so it fails on all
  unsigned seed = 0;
};

/// Small integers: sums of them are exact in any order.
float value_of(const Operation& operation, int rank, std::size_t tensor, std::size_t i) {
  return static_cast<float>((operation.seed + 7U * static_cast<unsigned>(rank) + 3U * tensor + i) % 11U) + 1.0F;
}

class Stress {
 public:
  Stress(TensorEngine& engine, Client& client, unsigned seed)
      : engine_(engine), client_(client), rank_(engine.communicator().rank()), shared_(seed), own_(seed * 31U + 1U) {
    own_.discard(static_cast<unsigned long long>(rank_));
    own_.seed(own_() + static_cast<unsigned>(rank_));
    sets_[0] = {0, 1, 2, 3};
  }

  /// @returns  the requests that were made
  std::size_t run(std::size_t operations) {
    std::size_t made = 0;
    while (made < operations && !::testing::Test::HasFailure()) {
      const unsigned what = shared_() % 40;
      if (what == 0) {
        made += run_join();
      } else if (what == 1) {
        run_mismatch_of_names();
        ++made;
      } else if (what < 5) {
        made += run_step();
      } else {
        made += run_together(what == 5);
      }
    }
    while (sets_.size() > 1) remove_set(std::prev(sets_.end())->first);
    return made;
  }

 private:
  struct InFlight {
    const Operation* operation = nullptr;
    Client::Tensors tensors;
  };

  void delay() {
    const unsigned how = own_() % 16;
    if (how < 3) std::this_thread::yield();
    if (how > 2) return;
    for (unsigned spins = own_() % 3000; spins > 0; --spins) std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  std::map<int, std::vector<int>>::iterator random_set() {
    return std::next(sets_.begin(), static_cast<std::ptrdiff_t>(shared_() % sets_.size()));
  }

  Operation random_operation(const std::set<std::string>& taken) {
    Operation operation;
    const auto set = random_set();
    operation.options.process_set = set->first;
    operation.members = set->second;
    do operation.name = "n" + std::to_string(shared_() % 60);
    while (taken.contains(operation.name));
    operation.seed = shared_() % 1000;
    Client::Options& options = operation.options;
    constexpr RequestKind kKinds[] = {RequestKind::kAllreduce, RequestKind::kAllreduce,    RequestKind::kAllreduce,
                                      RequestKind::kAllgather, RequestKind::kBroadcast,    RequestKind::kAlltoall,
                                      RequestKind::kBarrier,   RequestKind::kReduceScatter};
    // A name mostly means the same as before, so that numbers are used; now and then it changes.
    std::mt19937 fixed(static_cast<unsigned>(std::hash<std::string>()(operation.name)) + shared_() % 8 / 7);
    options.kind = kKinds[fixed() % std::size(kKinds)];
    constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kAverage};
    const bool reduces = options.kind == RequestKind::kAllreduce || options.kind == RequestKind::kReduceScatter;
    if (reduces) options.op = kOps[fixed() % std::size(kOps)];
    if (reduces && fixed() % 5 == 0) options.prescale = 2.0;
    if (options.kind == RequestKind::kBroadcast) options.root = static_cast<int>(fixed() % operation.members.size());
    const bool is_group = fixed() % 4 == 0 && options.kind != RequestKind::kBarrier;
    for (std::size_t tensor = is_group ? 1 + fixed() % 4 : 1; tensor > 0; --tensor) {
      operation.counts.push_back(fixed() % 40 == 0 ? 40'000 + fixed() % 100 : fixed() % 70);
    }
    if (options.kind == RequestKind::kBarrier) operation.counts = {0};
    if (shared_() % 50 == 0 && options.kind == RequestKind::kAllreduce && operation.members.size() > 1) {
      operation.odd_rank = operation.members[shared_() % operation.members.size()];
    }
    return operation;
  }

  bool is_member(const Operation& operation) const {
    return std::find(operation.members.begin(), operation.members.end(), rank_) != operation.members.end();
  }

  static std::int64_t rows_to(const Operation& operation, int from, int to) {
    return static_cast<std::int64_t>((operation.seed + static_cast<unsigned>(3 * from + to)) % 5);
  }

  /// Values that `rank` submits as tensor number `tensor`.
  static std::vector<float> input_of(const Operation& operation, int rank, std::size_t tensor) {
    std::size_t count = operation.counts[tensor];
    if (operation.options.kind == RequestKind::kAllgather) count = (count + static_cast<std::size_t>(rank)) % 70;
    if (operation.options.kind == RequestKind::kAlltoall) {
      count = 0;
      for (const int to : operation.members) count += static_cast<std::size_t>(rows_to(operation, rank, to));
    }
    if (operation.odd_rank == rank) ++count;
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = value_of(operation, rank, tensor, i);
    return values;
  }

  InFlight submit(const Operation& operation, bool waits) {
    Client::Options options = operation.options;
    if (waits) options.waiting = Waiting::kCaller;
    if (options.kind == RequestKind::kAlltoall) {
      for (const int to : operation.members) options.splits.push_back(rows_to(operation, rank_, to));
    }
    std::vector<std::vector<float>> values;
    for (std::size_t i = 0; i < operation.counts.size(); ++i) values.push_back(input_of(operation, rank_, i));
    return {&operation, client_.submit(operation.name, std::move(values), options)};
  }

  static float reduced(const Operation& operation, std::size_t tensor, std::size_t i) {
    float result = 0.0F;
    for (const int rank : operation.members) {
      const float value = static_cast<float>(operation.options.prescale) * value_of(operation, rank, tensor, i);
      const bool is_first = rank == operation.members.front();
      switch (operation.options.op) {
        case ReduceOp::kMin:
          result = is_first ? value : std::min(result, value);
          break;
        case ReduceOp::kMax:
          result = is_first ? value : std::max(result, value);
          break;
        default:
          result += value;
      }
    }
    if (operation.options.op == ReduceOp::kAverage) result /= static_cast<float>(operation.members.size());
    return result;
  }

  std::vector<float> expected_of(const Operation& operation, std::size_t tensor) const {
    std::vector<float> expected;
    const std::size_t count = operation.counts[tensor];
    switch (operation.options.kind) {
      case RequestKind::kAllreduce:
        for (std::size_t i = 0; i < count; ++i) expected.push_back(reduced(operation, tensor, i));
        break;
      case RequestKind::kReduceScatter: {
        const std::size_t size = operation.members.size();
        std::size_t first = 0;
        for (std::size_t i = 0; i < size; ++i) {
          const std::size_t rows = count / size + (i < count % size ? 1 : 0);
          for (std::size_t row = first; row < first + rows && operation.members[i] == rank_; ++row) {
            expected.push_back(reduced(operation, tensor, row));
          }
          first += rows;
        }
        break;
      }
      case RequestKind::kAllgather:
        for (const int rank : operation.members) append(expected, input_of(operation, rank, tensor));
        break;
      case RequestKind::kBroadcast:
        expected = input_of(operation, operation.members[static_cast<std::size_t>(operation.options.root)], tensor);
        break;
      case RequestKind::kAlltoall:
        for (const int from : operation.members) {
          const std::vector<float> sent = input_of(operation, from, tensor);
          std::ptrdiff_t first = 0;
          for (const int to : operation.members) {
            const auto rows = static_cast<std::ptrdiff_t>(rows_to(operation, from, to));
            if (to == rank_) expected.insert(expected.end(), sent.begin() + first, sent.begin() + first + rows);
            first += rows;
          }
        }
        break;
      default:
        break;
    }
    return expected;
  }
  static void append(std::vector<float>& to, const std::vector<float>& values) {
    to.insert(to.end(), values.begin(), values.end());
  }

  void check(const InFlight& request) const {
    const Operation& operation = *request.operation;
    for (std::size_t i = 0; i < request.tensors.size(); ++i) {
      const Pending& tensor = *request.tensors[i];
      if (operation.odd_rank >= 0) {
        ASSERT_TRUE(tensor.error.has_value()) << operation.name << ": rank " << operation.odd_rank << " differs";
        ASSERT_EQ(tensor.error->kind, ErrorKind::kMismatch) << tensor.error->text;
        continue;
      }
      ASSERT_FALSE(tensor.error.has_value()) << operation.name << ": " << tensor.error->text;
      ASSERT_EQ(tensor.output, expected_of(operation, i))
          << operation.name << ", " << name(operation.options.kind) << ", tensor " << i;
    }
  }

  /// Up to a dozen requests in any order, maybe while process sets come and go.
  std::size_t run_together(bool changes_sets) {
    std::set<std::string> taken;
    std::vector<Operation> operations;
    for (unsigned i = 1 + shared_() % 12; i > 0; --i) {
      operations.push_back(random_operation(taken));
      taken.insert(operations.back().name);
    }
    std::vector<const Operation*> order;
    for (const Operation& operation : operations) {
      if (is_member(operation)) order.push_back(&operation);
    }
    std::shuffle(order.begin(), order.end(), own_);
    // The last one may be waited for as it is submitted, if all ranks have it as their last.
    const bool waits = operations.size() == 1;
    std::vector<InFlight> in_flight;
    const std::size_t change_at = changes_sets && !order.empty() ? own_() % order.size() : 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (changes_sets && i == change_at) add_set();
      delay();
      in_flight.push_back(submit(*order[i], waits));
    }
    if (changes_sets && order.empty()) add_set();
    for (const InFlight& request : in_flight) {
      client_.wait(request.tensors);
      check(request);
      if (::testing::Test::HasFatalFailure()) return operations.size();
    }
    if (changes_sets && sets_.size() > 3) {
      const auto oldest = std::next(sets_.begin());
      remove_set(oldest->first);
    }
    return operations.size();
  }

  void add_set() {
    // Not from `shared_`: ranks come here at different points of their programs, but equally often.
    std::mt19937 random(changes_++);
    std::vector<int> ranks;
    while (ranks.empty()) {
      for (int rank = 0; rank < kRanks; ++rank) {
        if (random() % 2 == 0) ranks.push_back(rank);
      }
    }
    added_[engine_.add_process_set(ranks)] = ranks;
    // Used from the next time on: the others may not have it yet.
    for (const auto& [id, members] : added_) sets_[id] = members;
    added_.clear();
  }

  /// With something of one rank pending in it.
  void remove_set(int id) {
    const std::vector<int> members = sets_.at(id);
    Client::Tensors orphan;
    Client::Options options;
    options.process_set = id;
    if (members.size() > 1 && members.back() == rank_) orphan = client_.submit("orphan", {{1.0F}}, options);
    delay();
    engine_.remove_process_set(id);
    sets_.erase(id);
    client_.wait(orphan);
    for (const auto& tensor : orphan) {
      ASSERT_TRUE(tensor->error.has_value());
      ASSERT_EQ(tensor->error->kind, ErrorKind::kInvalidArgument) << tensor->error->text;
    }
  }

  /// Rank r has a number of batches of its own, then joins; the others go on without it.
  std::size_t run_join() {
    std::vector<int> batches;
    for (int rank = 0; rank < kRanks; ++rank) batches.push_back(static_cast<int>(shared_() % 6));
    for (int batch = 0; batch < batches[static_cast<std::size_t>(rank_)]; ++batch) {
      delay();
      const auto active = std::count_if(batches.begin(), batches.end(), [&](int each) { return each > batch; });
      const std::vector<float> sum = client_.allreduce("batch", {1.0F, 2.0F});
      EXPECT_EQ(sum, (std::vector<float>{static_cast<float>(active), 2.0F * static_cast<float>(active)}));
    }
    struct Answer {
      std::atomic<bool> done{false};
      int last = -1;
    } answer;
    engine_.join(0, &answer, [](void* context, const farandole_error* error, std::int32_t last) {
      EXPECT_EQ(error, nullptr);
      static_cast<Answer*>(context)->last = last;
      static_cast<Answer*>(context)->done.store(true);
    });
    engine_.wait_until([&] { return answer.done.load(); });
    EXPECT_GE(answer.last, 0);
    return static_cast<std::size_t>(1 + *std::max_element(batches.begin(), batches.end()));
  }

  /// In some steps one rank disagrees about one request, and no rank comes to all the others.
  std::size_t run_step() {
    const bool fails = shared_() % 2 == 0;
    std::vector<Operation> operations(2 + shared_() % 8);
    for (std::size_t i = 0; i < operations.size(); ++i) {
      Operation& operation = operations[i];
      operation.name = "step" + std::to_string(i);
      operation.members = sets_.at(0);
      operation.counts = {1 + i * 5};
      operation.seed = shared_() % 1000;
      operation.options.generation = engine_.generation(0);
    }
    if (fails) operations.front().odd_rank = static_cast<int>(shared_() % kRanks);
    std::vector<const Operation*> order;
    for (const Operation& operation : operations) order.push_back(&operation);
    std::shuffle(order.begin(), order.end(), own_);
    if (fails) {
      std::erase_if(order, [&](const auto* each) { return each != operations.data() && own_() % 2 == 0; });
    }
    std::vector<InFlight> in_flight;
    for (const Operation* operation : order) {
      delay();
      in_flight.push_back(submit(*operation, /*waits=*/false));
    }
    for (const InFlight& request : in_flight) {
      client_.wait(request.tensors);
      const auto& error = request.tensors.front()->error;
      if (fails && error) {
        EXPECT_EQ(error->kind, ErrorKind::kMismatch) << error->text;
      } else {
        check(request);
      }
    }
    return operations.size();
  }

  /// One rank submits another name: it and the others would wait for ever.
  void run_mismatch_of_names() {
    if (mismatches_++ % 20 != 0) return;  // each takes 300 ms
    const int odd = static_cast<int>(shared_() % kRanks);
    EXPECT_THROW((void)client_.allreduce(rank_ == odd ? "left" : "right", {1.0F}), Mismatch);
  }

  TensorEngine& engine_;
  Client& client_;
  const int rank_;
  std::mt19937 shared_, own_;
  std::map<int, std::vector<int>> sets_, added_;
  unsigned changes_ = 0;
  int mismatches_ = 0;
};

void stress(unsigned seed, std::size_t operations) {
  std::atomic<std::size_t> made{0};
  run_engines(kRanks, [&](TensorEngine& engine, Client& client) {
    const std::size_t own = Stress(engine, client, seed).run(operations);
    if (engine.communicator().rank() == 0) made.store(own);
  });
  EXPECT_GE(made.load(), operations) << "seed " << seed;
}

TEST(EngineStress, RandomOperations) {
  stress(/*seed=*/1, 4000);
}

/// A million in ten parts, by hand: --gtest_also_run_disabled_tests --gtest_filter='*Million*'
class EngineMillion : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Parts, EngineMillion, ::testing::Range(100U, 110U));

TEST_P(EngineMillion, DISABLED_RandomOperations) {
  stress(GetParam(), 100'000);
}

}  // namespace
}  // namespace farandole::testing
