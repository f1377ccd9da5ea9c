// SPDX-License-Identifier: Apache-2.0
// farandole-bench --tune: every way to run each collective, measured in turn, and the fastest ones as a table.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

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
constexpr double kNeverFinished = std::numeric_limits<double>::infinity();
constexpr double kTie = 0.03;  // what is faster by less is not worth another choice than the built-in one

/// One way to run a collective, on a communicator of its own whose table says so.
struct Way {
  TuningTable table;
  std::string algorithm;
  int segments = 1;
  bool is_built_in = false;
  Communicator ranks;
};

/// Shares out the time by what each case is expected to take. Rank 0's clock decides for all.
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
  struct Runner {
    std::size_t way;
    Contender contender;
    std::vector<double> samples;
  };

  std::vector<Shape> ladder(Collective collective) const;
  Shape shape(Collective collective, std::size_t bytes) const {
    return shape_of(ranks_, options_, collective, bytes, !options_.measures(collective, false));
  }
  std::size_t bytes_of(const Shape& shape) const { return shape.count * size_in_bytes(options_.dtype); }
  std::vector<std::size_t> limit_sizes(std::size_t from, std::size_t to, std::size_t factor) const;
  double total_weight() const;
  template <class... Arguments>
  void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    if (ranks_.rank() == 0) fmt::print(stderr, format, std::forward<Arguments>(arguments)...);
  }

  Way way(TuningTable table, std::string algorithm, int segments) const;
  bool can_run(TuningTable table, Collective collective, std::size_t bytes, std::string_view method) const;
  Way shared_memory_way(std::size_t one_shot_bytes, std::size_t slice_bytes) const;
  /// The names of what is no schedule and can run.
  std::vector<std::string_view> methods_of(Collective collective, std::size_t bytes) const;
  std::vector<Way> ways_of(Collective collective, const Shape& shape) const;
  std::vector<double> compare(const Shape& shape, std::vector<Way>& ways, bool drop_slow_ones);
  bool take_round(std::vector<Runner>& runners, std::size_t bytes);
  void find_one_shot_bytes();
  void find_slice_bytes();
  bool tune(const Shape& shape, const Shape* next);

  Communicator& ranks_;
  const Options& options_;
  const MemoryKind memory_;
  TuningTable table_;
  Budget budget_;
  bool time_is_up_ = false;  // the same on all ranks
};

std::vector<std::size_t> Tuner::limit_sizes(std::size_t from, std::size_t to, std::size_t factor) const {
  std::vector<std::size_t> sizes;
  if (!ranks_.shares_memory() || memory_ != MemoryKind::kHost) return sizes;
  for (std::size_t bytes = from; bytes <= std::min(to, options_.max_bytes); bytes *= factor) {
    if (bytes >= options_.min_bytes) sizes.push_back(bytes);
  }
  return sizes;
}

/// The sizes of a collective, ascending. Several sizes that are asked for may be the same one of equal parts.
std::vector<Shape> Tuner::ladder(Collective collective) const {
  std::vector<Shape> shapes;
  for (auto next = static_cast<double>(options_.min_bytes); next <= static_cast<double>(options_.max_bytes);
       next *= options_.factor) {
    const Shape found = shape(collective, static_cast<std::size_t>(next));
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
    for (const Shape& step : ladder(collective)) weight += weight_of(bytes_of(step));
  }
  return weight;
}

Way Tuner::way(TuningTable table, std::string algorithm, int segments) const {
  Communicator ranks = ranks_.duplicate({.table = &table});
  return {std::move(table), std::move(algorithm), segments, false, std::move(ranks)};
}

Way Tuner::shared_memory_way(std::size_t one_shot_bytes, std::size_t slice_bytes) const {
  TuningTable table = table_;
  table.one_shot_bytes = one_shot_bytes;
  table.slice_bytes = slice_bytes;
  return way(std::move(table), "shared_memory", 1);
}

/// Whether the ranks would follow a table that says so.
bool Tuner::can_run(TuningTable table, Collective collective, std::size_t bytes, std::string_view method) const {
  table.of(collective, memory_) = {{kAnySize, std::string(method), 1, 0}};
  try {
    return internals(ranks_.duplicate({.table = &table})).choose(collective, bytes, memory_) == method;
  } catch (const InvalidArgument&) {
    return false;  // it is for other places of ranks
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

/// Every algorithm that can run, in segments of several sizes, and what is no schedule.
std::vector<Way> Tuner::ways_of(Collective collective, const Shape& shape) const {
  std::vector<std::pair<std::string, int>> names;
  const auto add = [&](std::string_view algorithm, int segments) {
    const std::pair<std::string, int> entry(algorithm, segments);
    if (std::find(names.begin(), names.end(), entry) == names.end()) names.push_back(entry);
  };
  const auto usual = static_cast<std::size_t>(internals(ranks_).settings().segment_bytes);
  for (const Algorithm& algorithm : algorithms()) {
    // The comparison of calls is a barrier by itself, and with shared memory not one by messages.
    if (collective == Collective::kBarrier && ranks_.shares_memory()) break;
    if (algorithm.collective != collective || !algorithm.supports(ranks_.size())) continue;
    for (const std::size_t segment_bytes : {usual, usual / 4, usual * 4}) {
      add(algorithm.name, segments_for_size(algorithm, ranks_.size(), bytes_of(shape), segment_bytes));
    }
  }
  // Without a table the communicator's own choice is the built-in one.
  TuningTable empty = table_;
  empty.entries = empty.device_entries = {};
  Communicator plain = ranks_.duplicate({.table = &empty});
  const std::string built_in = internals(plain).choose(collective, bytes_of(shape), memory_);
  for (const std::string_view method : methods_of(collective, bytes_of(shape))) add(method, 1);
  std::vector<Way> ways;
  for (const auto& [algorithm, segments] : names) {
    TuningTable table = empty;
    table.of(collective, memory_) = {{kAnySize, algorithm, segments, 0}};
    ways.push_back(way(std::move(table), algorithm, segments));
    // The first one of a name has the usual segments.
    ways.back().is_built_in =
        algorithm == built_in && (ways.size() == 1 || ways[ways.size() - 2].algorithm != built_in);
  }
  return ways;
}

/// One sample of each. The slowest rank's time counts, so that all ranks see the same figures. Returns whether the
/// case's time is over.
bool Tuner::take_round(std::vector<Runner>& runners, std::size_t bytes) {
  std::vector<double> times;
  for (Runner& runner : runners) {
    // What the one before has left in the caches matters to short calls only.
    if (bytes <= kShort) runner.contender.call();
    times.push_back(time_calls(ranks_, runner.contender, calls_for(bytes)));
  }
  const bool decides = ranks_.rank() == 0;
  times.push_back(decides && budget_.case_is_over() ? 1 : 0);
  times.push_back(decides && budget_.is_over() ? 1 : 0);
  ranks_.allreduce(times, ReduceOp::kMax);
  for (std::size_t i = 0; i < runners.size(); ++i) runners[i].samples.push_back(times[i]);
  time_is_up_ = times.back() != 0;
  return times[times.size() - 2] != 0;
}

/// The median of each way; of those that are dropped on the way, none. Empty if the time is up.
std::vector<double> Tuner::compare(const Shape& shape, std::vector<Way>& ways, bool drop_slow_ones) {
  budget_.begin_case(weight_of(bytes_of(shape)));
  if (time_is_up_) return {};
  Options checked = options_;
  const std::size_t bytes = bytes_of(shape);
  checked.check = options_.check && bytes <= kShort;  // comparing takes longer than what is compared
  checked.pairs = 1;
  std::vector<Runner> runners;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    // All use the same memory: there may be too many for memory of their own.
    runners.push_back({i,
                       i == 0 ? Contender::farandole(ways[i].ranks, checked, shape, "")
                              : runners.front().contender.on(ways[i].ranks, checked),
                       {}});
    if (const long long wrong = runners.back().contender.try_all(ranks_, checked); wrong > 0) {
      throw InternalError(fmt::format("{} of {} bytes by {}: {} elements are wrong", name(shape.collective), bytes,
                                      ways[i].algorithm, wrong));
    }
  }
  const std::size_t most = options_.iterations > 0 ? static_cast<std::size_t>(options_.iterations) : 60;
  constexpr std::size_t kFew = 3, kEnough = 5;
  for (std::size_t samples = 1; samples <= most; ++samples) {
    const bool is_over = take_round(runners, bytes);
    if (time_is_up_ || (is_over && samples >= kFew)) break;
    if (!drop_slow_ones) continue;
    double best = kNeverFinished;
    for (const Runner& runner : runners) best = std::min(best, median(runner.samples));
    // One sample of a short call may be far off; several are not.
    const double slow = samples == 1 ? (bytes <= kShort ? 4 : 2) * best : samples >= kFew ? 1.5 * best : kNeverFinished;
    std::erase_if(runners, [&](const Runner& runner) { return median(runner.samples) > slow; });
    if (runners.size() == 1 && samples >= kEnough) break;
  }
  std::vector<double> medians(ways.size(), kNeverFinished);
  for (const Runner& runner : runners) medians[runner.way] = median(runner.samples);
  return medians;
}

/// Up to this size the sum of what is lost against the better one of one shot and two is least.
void Tuner::find_one_shot_bytes() {
  const std::vector<std::size_t> sizes = limit_sizes(kFirstOneShot, kLastOneShot, 2);
  if (sizes.empty()) return;
  const auto slice_bytes = static_cast<std::size_t>(internals(ranks_).settings().slice_bytes);
  std::vector<Way> ways;
  ways.push_back(shared_memory_way(sizes.back(), slice_bytes));
  ways.push_back(shared_memory_way(0, slice_bytes));
  std::vector<double> lost(sizes.size() + 1, 0);  // with a limit below sizes[i]
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::vector<double> times = compare(shape(Collective::kAllreduce, sizes[i]), ways, false);
    if (times.empty()) return;
    const double best = std::min(times[0], times[1]);
    for (std::size_t k = 0; k < lost.size(); ++k) lost[k] += times[k > i ? 0 : 1] / best - 1;
  }
  const auto least = static_cast<std::size_t>(std::min_element(lost.begin(), lost.end()) - lost.begin());
  table_.one_shot_bytes = least == 0 ? sizes.front() / 2 : sizes[least - 1];
  say("shared memory: one shot up to {} bytes\n", *table_.one_shot_bytes);
}

void Tuner::find_slice_bytes() {
  const std::vector<std::size_t> sizes = limit_sizes(kFirstPartSize, kLastPartSize, 8);
  if (sizes.empty()) return;
  const auto usual = static_cast<std::size_t>(internals(ranks_).settings().slice_bytes);
  const auto one_shot =
      table_.one_shot_bytes.value_or(static_cast<std::size_t>(internals(ranks_).settings().one_shot_bytes));
  constexpr std::size_t kSmallest = 64 << 10, kLargest = 2 << 20;
  std::vector<Way> ways;
  ways.push_back(shared_memory_way(one_shot, usual));
  for (std::size_t part = kSmallest; part <= kLargest; part *= 2) {
    if (part != usual && part >= one_shot) ways.push_back(shared_memory_way(one_shot, part));
  }
  std::vector<double> lost(ways.size(), 0);
  for (const std::size_t bytes : sizes) {
    const std::vector<double> times = compare(shape(Collective::kAllreduce, bytes), ways, false);
    if (times.empty()) return;
    const double best = *std::min_element(times.begin(), times.end());
    for (std::size_t i = 0; i < ways.size(); ++i) lost[i] += times[i] / best - 1;
  }
  const auto least = static_cast<std::size_t>(std::min_element(lost.begin(), lost.end()) - lost.begin());
  const bool is_tie = lost[0] - lost[least] < kTie * static_cast<double>(sizes.size());
  table_.slice_bytes = ways[is_tie ? 0 : least].table.slice_bytes;
  say("shared memory: parts of {} bytes\n", *table_.slice_bytes);
}

/// One entry of the table. False if the time is up.
bool Tuner::tune(const Shape& shape, const Shape* next) {
  const Collective collective = shape.collective;
  const std::size_t bytes = bytes_of(shape);
  std::vector<Way> ways = ways_of(collective, shape);
  const std::vector<double> times = compare(shape, ways, true);
  if (times.empty()) return false;
  auto best = static_cast<std::size_t>(std::min_element(times.begin(), times.end()) - times.begin());
  for (std::size_t k = 0; k < ways.size(); ++k) {
    if (ways[k].is_built_in && times[k] <= (1 + kTie) * times[best]) best = k;
  }
  // Up to half way to the next size, in orders of magnitude.
  const auto low = static_cast<double>(bytes);
  const double high = next != nullptr ? static_cast<double>(bytes_of(*next)) : low * options_.factor;
  constexpr double kTimeDigits = 1000;
  table_.of(collective, memory_)
      .push_back({static_cast<std::size_t>(std::sqrt(low * high)), ways[best].algorithm, ways[best].segments,
                  std::round(times[best] * kTimeDigits) / kTimeDigits});
  say("{} of {} bytes: {}, {} segment{}, {:.2f} us{}\n", name(collective), bytes, ways[best].algorithm,
      ways[best].segments, ways[best].segments == 1 ? "" : "s", times[best],
      ways[best].is_built_in ? "" : " (not the built-in choice)");
  return true;
}

TuningTable Tuner::run() {
  say("# farandole-bench --tune: {}, memory {}, type {}, op {}, for about {} s\n", describe(table_.shape),
      name(options_.memory), name(options_.dtype), name(options_.op), options_.tune_seconds);
  find_one_shot_bytes();
  find_slice_bytes();
  std::vector<std::vector<Shape>> ladders;
  std::size_t longest = 0;
  for (const Collective collective : options_.collectives) {
    ladders.push_back(ladder(collective));
    longest = std::max(longest, ladders.back().size());
  }
  // Short vectors of all collectives before long ones of any: if the time is up, what is left out is above the tables.
  for (std::size_t i = 0; i < longest; ++i) {
    for (const std::vector<Shape>& shapes : ladders) {
      if (i >= shapes.size() || tune(shapes[i], i + 1 < shapes.size() ? &shapes[i + 1] : nullptr)) continue;
      say("the time is up (--tune-seconds): {} from {} bytes on, and what is longer, keep the built-in choice\n",
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
  // What is forced goes before every table, so that all ways would be the same one.
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
