// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "bench.h"
#include "bench_case.h"
#include "farandole/core/error.h"
#include "farandole/internal/communicator_access.h"
#include "farandole/internal/deadline.h"
#include "farandole/internal/endpoint.h"

namespace farandole::bench {
namespace {

int samples_for(const Options& options, std::size_t bytes) {
  if (options.iterations > 0) return options.iterations;
  return bytes > (16 << 20) ? 10 : bytes > (1 << 20) ? 40 : bytes > (64 << 10) ? 100 : 300;
}

Times summary(std::vector<double>& samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2], samples[std::min(samples.size() - 1, samples.size() * 99 / 100)]};
}

/// Repeats an asynchronous allreduce on a communicator of its own during the measured calls (--beside).
class BackgroundAllreduce {
 public:
  /// Collective over `ranks`, which must outlive this object. @param bytes  size of the vector, whose type is f32
  BackgroundAllreduce(Communicator& ranks, std::size_t bytes)
      : ranks_(ranks),
        own_(ranks.duplicate()),
        values_(std::max<std::size_t>(1, bytes / size_in_bytes(DType::kF32)), DType::kF32) {}

  /// Begins the next allreduce, unless the previous one is still in flight. Non-blocking.
  void keep_running() {
    if (work_.valid() && !work_.test()) return;
    if (work_.valid()) work_.wait();  // throws if the allreduce has failed
    begin();
  }
  /// Waits until all ranks have completed the same number of allreduces. Collective over the ranks.
  void finish() {
    std::vector<std::int64_t> max_begun{begun_};
    ranks_.allreduce(max_begun, ReduceOp::kMax);
    while (begun_ < max_begun.front()) {
      if (work_.valid()) work_.wait();
      begin();
    }
    if (work_.valid()) work_.wait();
  }

 private:
  void begin() {
    work_ = own_.allreduce_async(values_.view(), ReduceOp::kSum);
    ++begun_;
  }

  Communicator& ranks_;
  Communicator own_;
  Buffer values_;  // zeros: sums of zeros stay zeros
  std::int64_t begun_ = 0;
  Work work_;  // last member: its destructor waits before the buffer is released
};

/// The peer and the background allreduce of every case; null if there is none.
struct CaseContext {
  const Peer* peer = nullptr;
  NcclPeer* nccl = nullptr;  ///< if the peer is NCCL
  BackgroundAllreduce* beside = nullptr;
};

/// Keeps the background allreduce running, then sleeps: without this pause the measured calls would leave no core to
/// the threads of the background allreduce.
void run_in_background(BackgroundAllreduce& beside) {
  beside.keep_running();
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/// Replaces each sample by the maximum or the average over all ranks, as --time-of says. Collective over `ranks`.
void merge_times(Communicator& ranks, TimeOf time_of, std::vector<double>& times) {
  if (time_of == TimeOf::kRank0) return;
  ranks.allreduce(times, time_of == TimeOf::kSlowest ? ReduceOp::kMax : ReduceOp::kAverage);
}

/// Measures both contenders in turn, sample by sample, so that other load of the machine affects both alike. With a
/// peer, each sample begins with an untimed call, because the other contender has just filled the caches.
void take_samples(Communicator& ranks, const Options& options, const CaseContext& context, Contender& ours,
                  Contender* peer, Result& result) {
  const int samples = samples_for(options, result.bytes);
  const int calls = context.beside != nullptr ? 1 : calls_for(result.bytes);
  std::vector<double> our_times, peer_times;
  for (int i = -samples / 10 - 2; i < samples; ++i) {
    if (context.beside != nullptr) run_in_background(*context.beside);
    if (peer != nullptr) ours.call();
    const double our_time = time_calls(ranks, ours, calls);
    if (i >= 0) our_times.push_back(our_time);
    if (peer == nullptr) continue;
    peer->call();
    const double peer_time = time_calls(ranks, *peer, calls);
    if (i >= 0) peer_times.push_back(peer_time);
  }
  merge_times(ranks, options.time_of, our_times);
  if (peer != nullptr) merge_times(ranks, options.time_of, peer_times);
  result.ours = summary(our_times);
  result.peer = summary(peer_times);
}

/// Measures one case. Collective over `ranks`.
Result measure(Communicator& ranks, const Options& options, const CaseContext& context, const Measured& measured,
               const std::string& algorithm, std::size_t bytes, bool in_place) {
  const CallShape shape = measured.collective ? shape_of(ranks, options, *measured.collective, bytes, in_place)
                                              : sendrecv_shape_of(ranks, options, bytes);
  Result result;
  result.measured = measured;
  result.count = shape.count;
  result.bytes = shape.count * size_in_bytes(options.dtype);
  result.algorithm = algorithm;
  if (!measured.collective) {
    result.algorithm = "messages";
  } else if (algorithm.empty()) {
    result.algorithm = internals(ranks).choose(*measured.collective, result.bytes, kind_of(options.memory));
  }
  result.transport = options.memory == Memory::kDevice ? "nccl" : internals(ranks).transport();
  result.ranks = ranks.size();
  result.in_place = in_place;

  Contender ours = Contender::farandole(ranks, options, shape, algorithm);
  result.wrong = ours.try_all(ranks, options);
  std::optional<Contender> peer_contender;
  if (context.peer != nullptr) {
    peer_contender = context.nccl != nullptr ? Contender::nccl(ranks, options, shape, *context.nccl)
                                             : Contender::vendor(ranks, options, shape, *context.peer->collectives);
    if (const long long wrong = peer_contender->try_all(ranks, options); wrong > 0) {
      throw InternalError(
          fmt::format("{} of {} bytes by {}: {} elements are wrong, so that there is nothing to compare with",
                      measured.name(), result.bytes, context.peer->version, wrong));
    }
  }
  take_samples(ranks, options, context, ours, peer_contender ? &*peer_contender : nullptr, result);
  return result;
}

}  // namespace

int calls_for(std::size_t bytes) {
  constexpr std::size_t kManyCallsUpTo = 64 << 10;
  return bytes <= kManyCallsUpTo ? 10 : 1;
}

double time_calls(Communicator& ranks, Contender& contender, int calls) {
  ranks.barrier();
  const auto start = Clock::now();
  for (int k = 0; k < calls; ++k) contender.call();
  const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
  return elapsed.count() / calls;
}

bool Options::measures(const Measured& measured, bool in_place_call) const {
  if (measured.collective == Collective::kBroadcast) return in_place_call;
  if (measured.collective == Collective::kBarrier || !measured.collective) return !in_place_call;
  return in_place_call ? in_place : out_of_place;
}

bool Options::measures_any(bool in_place_call) const {
  const std::vector<Measured> all = all_measured();
  return std::any_of(all.begin(), all.end(),
                     [&](const Measured& measured) { return measures(measured, in_place_call); });
}

std::vector<Measured> Options::all_measured() const {
  std::vector<Measured> all;
  for (const Collective collective : collectives) all.push_back({collective});
  if (sends_and_receives) all.push_back({});
  return all;
}

Peer open_peer(World& world) {
  const Topology& topology = world.topology();
  std::vector<int> ranks;
  std::set<int> processes;
  for (int rank = 0; rank < world.size(); ++rank) {
    ranks.push_back(rank);
    processes.insert(topology.rank(rank).process);
  }
  if (processes.size() != ranks.size()) {
    throw Unsupported(
        fmt::format("--peer mpi needs one rank per process, and the job's {} ranks live in {} process{}: start more "
                    "processes instead of --replicas",
                    ranks.size(), processes.size(), processes.size() == 1 ? "" : "es"));
  }
  // No communicator of this job has used the vendor yet, so the id 0 is free.
  Peer peer{world.backend_description(), world.endpoint().vendor_collectives(ranks, /*communicator=*/0)};
  if (peer.collectives == nullptr) {
    throw Unsupported(
        fmt::format("--peer mpi needs a job of an MPI that may be called at any time; this one's backend is {}: start "
                    "the program with mpirun",
                    peer.version));
  }
  peer.version.resize(std::min(peer.version.find(" ("), peer.version.size()));
  return peer;
}

NcclPeer::NcclPeer(Communicator& ranks) : device_(device_of(ranks)), stream_(device_.make_stream()) {
  if (ranks.size() == 1) throw Unsupported("--peer nccl needs several ranks");
  std::vector<std::uint8_t> id(std::tuple_size_v<DeviceGroupId>);
  if (ranks.rank() == 0) {
    const DeviceGroupId made = device_.make_group_id();
    std::memcpy(id.data(), made.data(), made.size());
  }
  ranks.broadcast(id, 0);
  DeviceGroupId shared{};
  std::memcpy(shared.data(), id.data(), shared.size());
  group_ = device_.join_group(shared, ranks.rank(), ranks.size());
}

void NcclPeer::run(const VendorCall& call) {
  group_->run(call, stream_);
  device_.synchronize(stream_);
}

bool NcclPeer::supports(const VendorCall& call) const {
  return group_->supports(call.collective, call.dtype, call.op);
}

double Result::algbw_gbs() const {
  return ours.p50_us > 0 ? 1e-3 * static_cast<double>(bytes) / ours.p50_us : 0;
}

double Result::busbw_gbs() const {
  const double n = ranks;
  if (!measured.collective) return algbw_gbs();
  switch (*measured.collective) {
    case Collective::kAllreduce:
      return algbw_gbs() * 2 * (n - 1) / n;
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kBarrier:
      return algbw_gbs();
    default:
      return algbw_gbs() * (n - 1) / n;
  }
}

std::vector<Result> run(Communicator& ranks, const Options& options, const Peer* peer) {
  std::vector<Result> results;
  std::optional<NcclPeer> opened;
  if (peer != nullptr && options.peer_is_nccl) opened.emplace(ranks);
  std::optional<BackgroundAllreduce> beside;
  if (options.beside_bytes > 0) beside.emplace(ranks, options.beside_bytes);
  const CaseContext context{peer, opened ? &*opened : nullptr, beside ? &*beside : nullptr};
  const std::vector<std::string> automatic{""};
  bool is_first = true;
  for (const Measured& measured : options.all_measured()) {
    for (const std::string& algorithm : options.algorithms.empty() ? automatic : options.algorithms) {
      double next = static_cast<double>(options.min_bytes);
      for (; next <= static_cast<double>(options.max_bytes); next *= options.factor) {
        const auto bytes = static_cast<std::size_t>(next);
        std::optional<Result> out_of_place, in_place;
        if (options.measures(measured, false)) {
          out_of_place = measure(ranks, options, context, measured, algorithm, bytes, false);
          results.push_back(*out_of_place);
        }
        if (options.measures(measured, true)) {
          in_place = measure(ranks, options, context, measured, algorithm, bytes, true);
          results.push_back(*in_place);
        }
        if (ranks.rank() == 0) {
          if (std::exchange(is_first, false)) print_header(options, ranks, peer);
          print_line(options, out_of_place ? &*out_of_place : nullptr, in_place ? &*in_place : nullptr);
        }
        if (measured.collective == Collective::kBarrier) break;
      }
    }
  }
  if (beside) beside->finish();
  return results;
}

}  // namespace farandole::bench
