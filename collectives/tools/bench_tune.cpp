// SPDX-License-Identifier: Apache-2.0
// farandole-bench --tune: measures every way to run each collective, and makes a table of the fastest ways.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "bench.h"
#include "bench_case.h"
#include "farandole/core/error.h"
#include "farandole/core/version.h"
#include "farandole/internal/communicator_access.h"
#include "farandole/internal/deadline.h"
#include "farandole/internal/device_collective.h"

namespace farandole::bench {
namespace {

constexpr std::size_t kAnySize = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kShort = 1 << 20;
constexpr double kDropped = std::numeric_limits<double>::infinity();  // median of a dropped candidate
constexpr double kTie = 0.03;  // the built-in choice wins unless a candidate is faster by more than this share

/// One way to run a collective: a communicator of its own, whose table forces the algorithm.
struct Candidate {
  TuningTable table;
  std::string algorithm;
  int segments = 1;
  bool is_built_in = false;
  Communicator ranks;
};

/// Divides the time of --tune-seconds among the cases, in proportion to their weights. Only rank 0's clock decides.
class Budget {
 public:
  Budget(double seconds, double weight) : end_(Clock::now() + duration(seconds)), weight_(weight) {}
  void begin_case(double weight) {
    const Seconds left = std::max(Seconds(0), Seconds(end_ - Clock::now()));
    case_end_ = Clock::now() + duration(left.count() * weight / std::max(weight_, weight));
    weight_ -= weight;
  }
  bool case_is_over() const { return Clock::now() >= case_end_; }
  bool is_over() const { return Clock::now() >= end_; }

 private:
  static Clock::duration duration(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
  }
  const Clock::time_point end_;
  double weight_;
  Clock::time_point case_end_{};
};

double weight_of(std::size_t bytes) {
  constexpr double kBytesOfAShortCall = 256 << 10;
  return 1 + static_cast<double>(bytes) / kBytesOfAShortCall;
}

double median(std::vector<double> samples) {
  std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2), samples.end());
  return samples[samples.size() / 2];
}

class Tuner {
 public:
  Tuner(Communicator& ranks, const Options& options)
      : ranks_(ranks),
        options_(options),
        memory_(kind_of(options.memory)),
        budget_(options.tune_seconds, total_weight()) {
    table_.shape = internals(ranks).tuning_shape();
    table_.version = version();
  }
  TuningTable run();

 private:
  struct CandidateRun {
    std::size_t candidate;  ///< index
    Contender contender;
    std::vector<double> samples;
  };

  std::vector<CallShape> sizes_of(Collective collective) const;
  CallShape shape(Collective collective, std::size_t bytes) const {
    return shape_of(ranks_, options_, collective, bytes, !options_.measures({collective}, false));
  }
  std::size_t bytes_of(const CallShape& shape) const { return shape.count * size_in_bytes(options_.dtype); }
  std::vector<std::size_t> limit_sizes(std::size_t from, std::size_t to, std::size_t factor) const;
  double total_weight() const;
  template <class... Arguments>
  void print_progress(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    if (ranks_.rank() == 0) fmt::print(stderr, format, std::forward<Arguments>(arguments)...);
  }

  Candidate make_candidate(TuningTable table, std::string algorithm, int segments) const;
  bool can_run(TuningTable table, Collective collective, std::size_t bytes, std::string_view method) const;
  Candidate make_shared_memory_candidate(std::size_t one_shot_bytes, std::size_t slice_bytes) const;
  /// Names of the methods that can run and are not schedules.
  std::vector<std::string_view> methods_of(Collective collective, std::size_t bytes) const;
  std::vector<Candidate> candidates_of(Collective collective, const CallShape& shape) const;
  std::vector<double> compare(const CallShape& shape, std::vector<Candidate>& candidates, bool drop_slow_candidates);
  bool take_round(std::vector<CandidateRun>& runs, std::size_t bytes);
  void find_one_shot_bytes();
  void find_slice_bytes();
  bool tune(const CallShape& shape, const CallShape* next);

  Communicator& ranks_;
  const Options& options_;
  const MemoryKind memory_;
  TuningTable table_;
  Budget budget_;
  bool time_is_up_ = false;  // equal on all ranks
};

std::vector<std::size_t> Tuner::limit_sizes(std::size_t from, std::size_t to, std::size_t factor) const {
  std::vector<std::size_t> sizes;
  if (!ranks_.shares_memory() || memory_ != MemoryKind::kHost) return sizes;
  for (std::size_t bytes = from; bytes <= std::min(to, options_.max_bytes); bytes *= factor) {
    if (bytes >= options_.min_bytes) sizes.push_back(bytes);
  }
  return sizes;
}

/// Sizes to measure for a collective, ascending and distinct: several requested sizes may round to the same size of
/// equal parts.
std::vector<CallShape> Tuner::sizes_of(Collective collective) const {
  std::vector<CallShape> shapes;
  for (auto next = static_cast<double>(options_.min_bytes); next <= static_cast<double>(options_.max_bytes);
       next *= options_.factor) {
    const CallShape found = shape(collective, static_cast<std::size_t>(next));
    if (shapes.empty() || found.count > shapes.back().count) shapes.push_back(found);
  }
  return shapes;
}

constexpr std::size_t kFirstOneShot = 512, kLastOneShot = 64 << 10;
constexpr std::size_t kFirstPartSize = 1 << 20, kLastPartSize = 64 << 20;

double Tuner::total_weight() const {
  double weight = 0;
  for (const std::size_t bytes : limit_sizes(kFirstOneShot, kLastOneShot, 2)) weight += weight_of(bytes);
  for (const std::size_t bytes : limit_sizes(kFirstPartSize, kLastPartSize, 8)) weight += weight_of(bytes);
  for (const Collective collective : options_.collectives) {
    for (const CallShape& step : sizes_of(collective)) weight += weight_of(bytes_of(step));
  }
  return weight;
}

Candidate Tuner::make_candidate(TuningTable table, std::string algorithm, int segments) const {
  Communicator ranks = ranks_.duplicate({.table = &table});
  return {std::move(table), std::move(algorithm), segments, false, std::move(ranks)};
}

Candidate Tuner::make_shared_memory_candidate(std::size_t one_shot_bytes, std::size_t slice_bytes) const {
  TuningTable table = table_;
  table.one_shot_bytes = one_shot_bytes;
  table.slice_bytes = slice_bytes;
  return make_candidate(std::move(table), "shared_memory", 1);
}

/// True if the ranks would run `method` with a table that names it.
bool Tuner::can_run(TuningTable table, Collective collective, std::size_t bytes, std::string_view method) const {
  table.of(collective, memory_) = {{kAnySize, std::string(method), 1, 0}};
  try {
    return internals(ranks_.duplicate({.table = &table})).choose(collective, bytes, memory_) == method;
  } catch (const InvalidArgument&) {
    return false;  // the method does not fit the communicator's shape
  }
}

std::vector<std::string_view> Tuner::methods_of(Collective collective, std::size_t bytes) const {
  std::vector<std::string_view> names{"shared_memory", "exchange", "hierarchical"};
  bool has_vendor = collective == Collective::kAllreduce && table_.shape.transport == "mpi" &&
                    vendor_agrees(options_.dtype, options_.op);
  if (memory_ != MemoryKind::kHost) {
    names = {"hierarchical"};
    has_vendor = device_vendor_agrees(collective, options_.dtype, options_.op);
  }
  if (has_vendor) names.push_back("vendor");
  TuningTable empty = table_;
  empty.entries = empty.device_entries = {};
  std::erase_if(names, [&](std::string_view method) { return !can_run(empty, collective, bytes, method); });
  return names;
}

/// All candidates of a case: every algorithm that supports the number of ranks, with segments of several sizes, and all
/// methods that are not schedules.
std::vector<Candidate> Tuner::candidates_of(Collective collective, const CallShape& shape) const {
  std::vector<std::pair<std::string, int>> names;
  const auto add = [&](std::string_view algorithm, int segments) {
    const std::pair<std::string, int> entry(algorithm, segments);
    if (std::find(names.begin(), names.end(), entry) == names.end()) names.push_back(entry);
  };
  const auto usual = static_cast<std::size_t>(internals(ranks_).settings().collectives.segment_bytes);
  for (const Algorithm& algorithm : algorithms()) {
    // Before each collective the ranks compare their calls, and the comparison already is a barrier. Ranks with shared
    // memory compare without messages, so a barrier by messages is no candidate.
    if (collective == Collective::kBarrier && ranks_.shares_memory()) break;
    if (algorithm.collective != collective || !algorithm.supports(ranks_.size())) continue;
    for (const std::size_t segment_bytes : {usual, usual / 4, usual * 4}) {
      add(algorithm.name, segments_for_size(algorithm, ranks_.size(), bytes_of(shape), segment_bytes));
    }
  }
  // A communicator with an empty table makes the built-in choice.
  TuningTable empty = table_;
  empty.entries = empty.device_entries = {};
  Communicator plain = ranks_.duplicate({.table = &empty});
  const std::string built_in = internals(plain).choose(collective, bytes_of(shape), memory_);
  for (const std::string_view method : methods_of(collective, bytes_of(shape))) add(method, 1);
  std::vector<Candidate> candidates;
  for (const auto& [algorithm, segments] : names) {
    TuningTable table = empty;
    table.of(collective, memory_) = {{kAnySize, algorithm, segments, 0}};
    candidates.push_back(make_candidate(std::move(table), algorithm, segments));
    // Among candidates with the same algorithm, the first has the built-in choice's number of segments.
    candidates.back().is_built_in =
        algorithm == built_in && (candidates.size() == 1 || candidates[candidates.size() - 2].algorithm != built_in);
  }
  return candidates;
}

/// Takes one sample of each run. The slowest rank's time counts, so that all ranks get the same samples. Returns true
/// if the case's time is over.
bool Tuner::take_round(std::vector<CandidateRun>& runs, std::size_t bytes) {
  std::vector<double> times;
  for (CandidateRun& run : runs) {
    // Make an untimed call first, because the previous run has filled the caches. Long calls replace the caches'
    // contents anyway.
    if (bytes <= kShort) run.contender.call();
    times.push_back(time_calls(ranks_, run.contender, calls_for(bytes)));
  }
  const bool decides = ranks_.rank() == 0;
  times.push_back(decides && budget_.case_is_over() ? 1 : 0);
  times.push_back(decides && budget_.is_over() ? 1 : 0);
  ranks_.allreduce(times, ReduceOp::kMax);
  for (std::size_t i = 0; i < runs.size(); ++i) runs[i].samples.push_back(times[i]);
  time_is_up_ = times.back() != 0;
  return times[times.size() - 2] != 0;
}

/// Returns each candidate's median, or kDropped for candidates that turned out slow. Returns nothing if the time of
/// --tune-seconds was already up.
std::vector<double> Tuner::compare(const CallShape& shape, std::vector<Candidate>& candidates,
                                   bool drop_slow_candidates) {
  budget_.begin_case(weight_of(bytes_of(shape)));
  if (time_is_up_) return {};
  Options checked = options_;
  const std::size_t bytes = bytes_of(shape);
  checked.check = options_.check && bytes <= kShort;  // checking long vectors takes longer than the collective
  checked.pairs = 1;
  std::vector<CandidateRun> runs;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    // All candidates share the first candidate's buffers, because memory may not suffice for separate buffers.
    runs.push_back({i,
                    i == 0 ? Contender::farandole(candidates[i].ranks, checked, shape, "")
                           : runs.front().contender.on(candidates[i].ranks, checked),
                    {}});
    if (const long long wrong = runs.back().contender.try_all(ranks_, checked); wrong > 0) {
      throw InternalError(fmt::format("{} of {} bytes by {}: {} elements are wrong", name(shape.collective), bytes,
                                      candidates[i].algorithm, wrong));
    }
  }
  const std::size_t max_samples = options_.iterations > 0 ? static_cast<std::size_t>(options_.iterations) : 60;
  constexpr std::size_t kMinSamples = 3, kEnoughSamples = 5;
  for (std::size_t samples = 1; samples <= max_samples; ++samples) {
    const bool is_over = take_round(runs, bytes);
    if (time_is_up_ || (is_over && samples >= kMinSamples)) break;
    if (!drop_slow_candidates) continue;
    double best = kDropped;
    for (const CandidateRun& run : runs) best = std::min(best, median(run.samples));
    // A single sample of a short call may be far off, so the limit is generous at first.
    const double slow = samples == 1             ? (bytes <= kShort ? 4 : 2) * best
                        : samples >= kMinSamples ? 1.5 * best
                                                 : kDropped;
    std::erase_if(runs, [&](const CandidateRun& run) { return median(run.samples) > slow; });
    if (runs.size() == 1 && samples >= kEnoughSamples) break;
  }
  std::vector<double> medians(candidates.size(), kDropped);
  for (const CandidateRun& run : runs) medians[run.candidate] = median(run.samples);
  return medians;
}

/// Finds the limit up to which shared-memory collectives run in one shot; longer vectors are pipelined. The loss of a
/// limit is the sum, over all measured sizes, of the relative time lost against the faster of the two. Takes the limit
/// with the smallest loss.
void Tuner::find_one_shot_bytes() {
  const std::vector<std::size_t> sizes = limit_sizes(kFirstOneShot, kLastOneShot, 2);
  if (sizes.empty()) return;
  const auto slice_bytes = static_cast<std::size_t>(internals(ranks_).settings().shared_memory.slice_bytes);
  std::vector<Candidate> candidates;
  candidates.push_back(make_shared_memory_candidate(sizes.back(), slice_bytes));
  candidates.push_back(make_shared_memory_candidate(0, slice_bytes));
  std::vector<double> loss(sizes.size() + 1, 0);  // loss[i]: the limit lies below sizes[i]
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::vector<double> times = compare(shape(Collective::kAllreduce, sizes[i]), candidates, false);
    if (times.empty()) return;
    const double best = std::min(times[0], times[1]);
    for (std::size_t k = 0; k < loss.size(); ++k) loss[k] += times[k > i ? 0 : 1] / best - 1;
  }
  const auto least = static_cast<std::size_t>(std::min_element(loss.begin(), loss.end()) - loss.begin());
  table_.one_shot_bytes = least == 0 ? sizes.front() / 2 : sizes[least - 1];
  print_progress("shared memory: one shot up to {} bytes\n", *table_.one_shot_bytes);
}

void Tuner::find_slice_bytes() {
  const std::vector<std::size_t> sizes = limit_sizes(kFirstPartSize, kLastPartSize, 8);
  if (sizes.empty()) return;
  const auto usual = static_cast<std::size_t>(internals(ranks_).settings().shared_memory.slice_bytes);
  const auto one_shot = table_.one_shot_bytes.value_or(
      static_cast<std::size_t>(internals(ranks_).settings().shared_memory.one_shot_bytes));
  constexpr std::size_t kSmallest = 64 << 10, kLargest = 2 << 20;
  std::vector<Candidate> candidates;
  candidates.push_back(make_shared_memory_candidate(one_shot, usual));
  for (std::size_t part = kSmallest; part <= kLargest; part *= 2) {
    if (part != usual && part >= one_shot) candidates.push_back(make_shared_memory_candidate(one_shot, part));
  }
  std::vector<double> loss(candidates.size(), 0);
  for (const std::size_t bytes : sizes) {
    const std::vector<double> times = compare(shape(Collective::kAllreduce, bytes), candidates, false);
    if (times.empty()) return;
    const double best = *std::min_element(times.begin(), times.end());
    for (std::size_t i = 0; i < candidates.size(); ++i) loss[i] += times[i] / best - 1;
  }
  const auto least = static_cast<std::size_t>(std::min_element(loss.begin(), loss.end()) - loss.begin());
  const bool is_tie = loss[0] - loss[least] < kTie * static_cast<double>(sizes.size());
  table_.slice_bytes = candidates[is_tie ? 0 : least].table.slice_bytes;
  print_progress("shared memory: parts of {} bytes\n", *table_.slice_bytes);
}

/// Measures one case and adds its entry to the table. Returns false if the time is up.
bool Tuner::tune(const CallShape& shape, const CallShape* next) {
  const Collective collective = shape.collective;
  const std::size_t bytes = bytes_of(shape);
  std::vector<Candidate> candidates = candidates_of(collective, shape);
  const std::vector<double> times = compare(shape, candidates, true);
  if (times.empty()) return false;
  auto best = static_cast<std::size_t>(std::min_element(times.begin(), times.end()) - times.begin());
  for (std::size_t k = 0; k < candidates.size(); ++k) {
    if (candidates[k].is_built_in && times[k] <= (1 + kTie) * times[best]) best = k;
  }
  // The entry holds up to the geometric mean of this size and the next size.
  const auto low = static_cast<double>(bytes);
  const double high = next != nullptr ? static_cast<double>(bytes_of(*next)) : low * options_.factor;
  constexpr double kTimeDigits = 1000;
  table_.of(collective, memory_)
      .push_back({static_cast<std::size_t>(std::sqrt(low * high)), candidates[best].algorithm,
                  candidates[best].segments, std::round(times[best] * kTimeDigits) / kTimeDigits});
  print_progress("{} of {} bytes: {}, {} segment{}, {:.2f} us{}\n", name(collective), bytes, candidates[best].algorithm,
                 candidates[best].segments, candidates[best].segments == 1 ? "" : "s", times[best],
                 candidates[best].is_built_in ? "" : " (not the built-in choice)");
  return true;
}

TuningTable Tuner::run() {
  print_progress("# farandole-bench --tune: {}, memory {}, type {}, op {}, for about {} s\n", describe(table_.shape),
                 name(options_.memory), name(options_.dtype), name(options_.op), options_.tune_seconds);
  find_one_shot_bytes();
  find_slice_bytes();
  std::vector<std::vector<CallShape>> sizes_by_collective;
  std::size_t longest = 0;
  for (const Collective collective : options_.collectives) {
    sizes_by_collective.push_back(sizes_of(collective));
    longest = std::max(longest, sizes_by_collective.back().size());
  }
  // Measure each size for all collectives before the next larger size. So when the time is up, all sizes that were not
  // measured are larger than the table's last entries.
  for (std::size_t i = 0; i < longest; ++i) {
    for (const std::vector<CallShape>& shapes : sizes_by_collective) {
      if (i >= shapes.size() || tune(shapes[i], i + 1 < shapes.size() ? &shapes[i + 1] : nullptr)) continue;
      print_progress(
          "the time is up (--tune-seconds): {} from {} bytes on, and what is longer, keep the built-in choice\n",
          name(shapes[i].collective), bytes_of(shapes[i]));
      return table_;
    }
  }
  return table_;
}

}  // namespace

void check_tunable(const Settings& settings, const Options& options, int ranks) {
  if (ranks == 1) throw InvalidArgument("--tune needs several ranks: start it with mpirun, or with --replicas");
  const auto refuse = [](std::string_view variable) {
    throw InvalidArgument(fmt::format("--tune measures what {} would set; unset it", variable));
  };
  // A forced algorithm overrides every table, so all candidates would run the same algorithm.
  for (const SettingInfo& info : settings_table()) {
    const bool is_limit = options.memory != Memory::kDevice &&
                          (info.variable == "FARANDOLE_ONE_SHOT_BYTES" || info.variable == "FARANDOLE_SLICE_BYTES");
    const bool is_changed = value_text(settings, info) != value_text(Settings{}, info);
    if (is_limit && is_changed) refuse(info.variable);
    for (const Collective collective : options.collectives) {
      std::string variable = fmt::format("FARANDOLE_{}", name(collective));
      std::transform(variable.begin(), variable.end(), variable.begin(), [](char letter) {
        return letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter;
      });
      if (is_changed && info.variable == variable) refuse(info.variable);
    }
  }
}

TuningTable tune(Communicator& ranks, const Options& options) {
  return Tuner(ranks, options).run();
}

}  // namespace farandole::bench
