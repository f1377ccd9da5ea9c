// SPDX-License-Identifier: Apache-2.0
// Random requests on device and host memory by ranks that are never in step: every result is exact.
//
// A seed that all ranks share determines the requests, in rounds of a few requests. Each rank shuffles the requests of
// a round by its own seed. ENGINE_STRESS_SEED and ENGINE_STRESS_REQUESTS set the seed and the number of requests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "device_client.h"
#include "values.h"

namespace farandole::test {
namespace {

unsigned number_of(const char* variable, unsigned otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

/// One request as all ranks know it. Its tensors have rows of one element.
struct Planned {
  DeviceRequest request;
  std::vector<int> members;         // of its process set
  std::vector<std::size_t> counts;  // of its tensors
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  bool on_host = false;
  int odd_rank = -1;  // has another shape, so the request fails on all
};

class DeviceStress {
 public:
  /// @param names         number of names that requests have
  /// @param max_together  number of requests in flight at most
  DeviceStress(unsigned seed, unsigned names, unsigned max_together)
      : names_(names),
        max_together_(max_together),
        shared_(seed),
        own_(seed * 31U + 7U * static_cast<unsigned>(engine_rank().rank)) {
    std::vector<int>& all = sets_[FARANDOLE_GLOBAL_SET];
    all.resize(static_cast<std::size_t>(engine_rank().size));
    std::iota(all.begin(), all.end(), 0);
    for (int i = 0; i < 2; ++i) streams_.push_back(engine_rank().device->make_stream());
  }

  void run(std::size_t requests) {
    while (made_ < requests && !testing::Test::HasFailure()) {
      const unsigned what = shared_() % 40;
      if (what == 0) {
        run_join();
      } else if (what == 1 && sets_.size() < 4) {
        add_set();
      } else {
        run_together();
      }
    }
    while (sets_.size() > 1) remove_set(std::prev(sets_.end())->first);
  }

 private:
  struct InFlight {
    const Planned* planned = nullptr;
    DeviceTensors tensors;
  };

  Planned random_request(unsigned number) {
    Planned planned;
    const auto set = std::next(sets_.begin(), static_cast<std::ptrdiff_t>(shared_() % sets_.size()));
    planned.members = set->second;
    planned.request.process_set = set->first;
    planned.request.name = "n" + std::to_string(number);
    // A name mostly means the same as before, so that buckets are planned; now and then it changes.
    std::mt19937 fixed(number * 8 + shared_() % 8 / 7);
    constexpr farandole_collective kKinds[] = {FARANDOLE_ALLREDUCE, FARANDOLE_ALLREDUCE, FARANDOLE_ALLREDUCE,
                                               FARANDOLE_ALLGATHER, FARANDOLE_BROADCAST, FARANDOLE_REDUCE_SCATTER,
                                               FARANDOLE_ALLTOALL};
    constexpr DType kTypes[] = {DType::kF32, DType::kF32, DType::kF64, DType::kF16,
                                DType::kI32, DType::kU32, DType::kU64};
    constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax};
    planned.request.collective = kKinds[fixed() % std::size(kKinds)];
    planned.dtype = kTypes[fixed() % std::size(kTypes)];
    planned.op = kOps[fixed() % std::size(kOps)];
    planned.request.op = static_cast<farandole_reduce_op>(planned.op);
    planned.request.root = planned.members[fixed() % planned.members.size()];
    planned.on_host = fixed() % 4 == 0;
    for (std::size_t tensor = fixed() % 4 == 0 ? 1 + fixed() % 4 : 1; tensor > 0; --tensor) {
      planned.counts.push_back(fixed() % 40 == 0 ? 40'000 + fixed() % 100 : fixed() % 70);
    }
    if (planned.request.collective == FARANDOLE_ALLREDUCE && shared_() % 50 == 0 && planned.members.size() > 1) {
      planned.odd_rank = planned.members[shared_() % planned.members.size()];
    }
    return planned;
  }

  static std::int64_t rows_to(std::size_t count, int from, int to) {
    return static_cast<std::int64_t>((count + static_cast<std::size_t>(3 * from + to)) % 5);
  }
  /// Rows of the tensor on `rank`.
  static std::size_t count_on(const Planned& planned, std::size_t count, int rank) {
    if (planned.odd_rank == rank) return count + 1;
    if (planned.request.collective == FARANDOLE_ALLGATHER) return (count + static_cast<std::size_t>(rank)) % 70;
    if (planned.request.collective != FARANDOLE_ALLTOALL) return count;
    std::int64_t rows = 0;
    for (const int to : planned.members) rows += rows_to(count, rank, to);
    return static_cast<std::size_t>(rows);
  }

  InFlight submit_planned(const Planned& planned) {
    InFlight flight{&planned, {}};
    for (const std::size_t count : planned.counts) {
      auto tensor = tensor_of(count_on(planned, count, engine_rank().rank), planned.dtype, planned.op);
      tensor->on_host = planned.on_host;
      tensor->in_place = planned.request.collective == FARANDOLE_ALLREDUCE && own_() % 2 == 0;
      tensor->stream = streams_[own_() % streams_.size()];
      if (planned.request.collective == FARANDOLE_ALLTOALL) {
        for (const int to : planned.members) tensor->splits.push_back(rows_to(count, engine_rank().rank, to));
      }
      flight.tensors.push_back(std::move(tensor));
    }
    must_submit(planned.request, flight.tensors);
    return flight;
  }

  double reduced_over(const Planned& planned, std::size_t i) const {
    double result = value(planned.members.front(), i, planned.dtype, planned.op);
    for (std::size_t k = 1; k < planned.members.size(); ++k) {
      const double next = value(planned.members[k], i, planned.dtype, planned.op);
      if (planned.op == ReduceOp::kSum) result += next;
      if (planned.op == ReduceOp::kMin) result = std::min(result, next);
      if (planned.op == ReduceOp::kMax) result = std::max(result, next);
    }
    return result;
  }

  std::vector<double> expected_of(const Planned& planned, std::size_t count) const {
    const int self = engine_rank().rank;
    std::vector<double> expected;
    const auto append = [&](int rank, std::size_t first, std::size_t rows) {
      for (std::size_t i = first; i < first + rows; ++i) expected.push_back(value(rank, i, planned.dtype, planned.op));
    };
    switch (planned.request.collective) {
      case FARANDOLE_ALLREDUCE:
        for (std::size_t i = 0; i < count; ++i) expected.push_back(reduced_over(planned, i));
        break;
      case FARANDOLE_REDUCE_SCATTER: {
        const std::size_t size = planned.members.size();
        std::size_t first = 0;
        for (std::size_t k = 0; k < size; ++k) {
          const std::size_t rows = count / size + (k < count % size ? 1 : 0);
          for (std::size_t i = first; i < first + rows && planned.members[k] == self; ++i) {
            expected.push_back(reduced_over(planned, i));
          }
          first += rows;
        }
        break;
      }
      case FARANDOLE_ALLGATHER:
        for (const int rank : planned.members) append(rank, 0, count_on(planned, count, rank));
        break;
      case FARANDOLE_ALLTOALL:
        for (const int from : planned.members) {
          std::int64_t first = 0;
          for (const int to : planned.members) {
            if (to == self)
              append(from, static_cast<std::size_t>(first), static_cast<std::size_t>(rows_to(count, from, to)));
            first += rows_to(count, from, to);
          }
        }
        break;
      default:
        append(planned.request.root, 0, count);
    }
    return expected;
  }

  void check(const InFlight& flight) const {
    const Planned& planned = *flight.planned;
    for (std::size_t i = 0; i < flight.tensors.size(); ++i) {
      TensorOnDevice& tensor = *flight.tensors[i];
      tensor.wait();
      if (planned.odd_rank >= 0) {
        ASSERT_TRUE(tensor.error().has_value()) << planned.request.name;
        ASSERT_EQ(tensor.error()->first, FARANDOLE_MISMATCH) << tensor.error()->second;
        continue;
      }
      Buffer result = tensor.result();
      const std::vector<double> expected = expected_of(planned, planned.counts[i]);
      ASSERT_EQ(result.count(), expected.size()) << planned.request.name;
      ASSERT_EQ(first_difference(std::as_const(result).view(), [&](std::size_t k) { return expected[k]; }), "")
          << planned.request.name << ", collective " << planned.request.collective << ", tensor " << i
          << (planned.on_host ? " on the host" : "");
    }
  }

  /// Requests of different names, submitted in any order.
  void run_together() {
    std::set<unsigned> numbers;
    for (unsigned i = 1 + shared_() % max_together_; i > 0; --i) numbers.insert(shared_() % names_);
    std::vector<Planned> all;
    for (const unsigned number : numbers) all.push_back(random_request(number));
    std::vector<const Planned*> order;
    for (const Planned& each : all) {
      const std::vector<int>& members = each.members;
      if (std::find(members.begin(), members.end(), engine_rank().rank) != members.end()) order.push_back(&each);
    }
    std::shuffle(order.begin(), order.end(), own_);
    std::vector<InFlight> flights;
    for (const Planned* each : order) {
      if (own_() % 4 == 0) std::this_thread::yield();
      flights.push_back(submit_planned(*each));
    }
    for (const InFlight& each : flights) check(each);
    made_ += all.size();
  }

  /// Rank r has a number of batches of its own, then joins; the others go on without it.
  void run_join() {
    std::vector<int> batches;
    for (int rank = 0; rank < engine_rank().size; ++rank) batches.push_back(static_cast<int>(shared_() % 4));
    for (int batch = 0; batch < batches[static_cast<std::size_t>(engine_rank().rank)]; ++batch) {
      DeviceTensors one;
      one.push_back(tensor_of(100, DType::kF32));
      must_submit({.name = "batch"}, one);
      Buffer sum = one.front()->result();
      EXPECT_EQ(first_difference(std::as_const(sum).view(),
                                 [&](std::size_t i) {
                                   double expected = 0;
                                   for (int rank = 0; rank < engine_rank().size; ++rank) {
                                     if (batches[static_cast<std::size_t>(rank)] <= batch) continue;
                                     expected += value(rank, i, DType::kF32, ReduceOp::kSum);
                                   }
                                   return expected;
                                 }),
                "");
    }
    join();
    ++made_;
  }

  /// While a request on the device is pending.
  void add_set() {
    std::vector<int> ranks;
    while (ranks.empty()) {
      for (int rank = 0; rank < engine_rank().size; ++rank) {
        if (shared_() % 2 == 0) ranks.push_back(rank);
      }
    }
    DeviceTensors pending;
    pending.push_back(tensor_of(1000, DType::kF32));
    must_submit({.name = "while a set is made"}, pending);
    const std::int32_t id = test::add_set(ranks);
    ASSERT_GE(id, 0);
    sets_[id] = ranks;
    EXPECT_NO_THROW((void)pending.front()->result());
  }

  void remove_set(int id) {
    test::remove_set(id);
    sets_.erase(id);
  }

  const unsigned names_, max_together_;
  std::mt19937 shared_, own_;  // of all ranks, of this rank
  std::map<int, std::vector<int>> sets_;
  std::vector<StreamView> streams_;
  std::size_t made_ = 0;
};

void run_stress(unsigned names, unsigned max_together, unsigned requests) {
  const unsigned seed = number_of("ENGINE_STRESS_SEED", 1);
  SCOPED_TRACE("seed " + std::to_string(seed));
  DeviceStress(seed, names, max_together).run(number_of("ENGINE_STRESS_REQUESTS", requests));
}

TEST(EngineOnDeviceStress, RandomRequests) {
  run_stress(60, 12, 1500);
}

/// More names than a model has variables, and hundreds in flight.
TEST(EngineOnDeviceStress, FiveThousandNames) {
  run_stress(5000, 800, 5000);
}

}  // namespace
}  // namespace farandole::test
