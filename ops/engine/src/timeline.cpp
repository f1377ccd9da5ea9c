// SPDX-License-Identifier: Apache-2.0
#include "timeline.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/library_thread.h"
#include "farandole/internal/log.h"

namespace farandole {
namespace {

// Interval between writes: even a job that is killed leaves nearly all events in the file.
constexpr std::chrono::milliseconds kFlushInterval{100};

double as_microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void Timeline::start(const std::string& path, bool mark_cycles) {
  stop();
  const std::lock_guard control(control_mutex_);
  file_.open(path, std::ios::out | std::ios::trunc);
  if (!file_) {
    const int reason = errno;
    file_.clear();
    throw InvalidArgument(fmt::format("the timeline '{}' cannot be written: {}", path, std::strerror(reason)));
  }
  path_ = path;
  rows_.clear();
  dropped_ = 0;
  is_first_line_ = true;
  origin_ = Clock::now();
  file_ << "[\n";
  const auto epoch = std::chrono::system_clock::now().time_since_epoch();
  write_line(fmt::format(
      R"({{"name": "process_name", "ph": "M", "pid": 0, "args": {{"start_time_since_epoch_in_micros": {}}}}})",
      std::chrono::duration_cast<std::chrono::microseconds>(epoch).count()));
  file_.flush();
  marks_cycles_.store(mark_cycles);
  thread_ = start_library_thread([this](const std::stop_token& token) { write_pending(token); });
  on_.store(true);
}

void Timeline::stop() {
  const std::lock_guard control(control_mutex_);
  if (!thread_.joinable()) return;
  on_.store(false);
  thread_.request_stop();
  is_pending_.notify_one();
  thread_.join();
  thread_ = {};
  std::uint64_t dropped = 0;
  {
    // Drop late events of threads that saw the timeline while it was still on.
    const std::lock_guard lock(mutex_);
    pending_.clear();
    dropped = dropped_;
  }
  if (dropped > 0) {
    write_line(fmt::format(R"({{"name": "{} events were dropped", "ph": "i", "s": "g", "pid": 0, "ts": {:.3f}}})",
                           dropped, as_microseconds(Clock::now() - origin_)));
    log(LogLevel::kWarning,
        fmt::format("{} events of the timeline {} were dropped: they came faster than they could be "
                    "written",
                    dropped, path_));
  }
  file_ << "\n]\n";
  file_.close();
  if (!file_) log(LogLevel::kWarning, fmt::format("the timeline {} could not be written to its end", path_));
  file_.clear();
}

void Timeline::begin(const std::string& tensor, std::string activity, Time when) {
  if (is_on()) put({EventKind::kBegin, tensor, std::move(activity), when, {}});
}

void Timeline::end(const std::string& tensor, Time when) {
  if (is_on()) put({EventKind::kEnd, tensor, {}, when, {}});
}

void Timeline::span(const std::string& tensor, std::string activity, Time from, Time to) {
  if (is_on() && from != Time{}) put({EventKind::kSpan, tensor, std::move(activity), from, to - from});
}

void Timeline::mark_cycle(Time when) {
  if (is_on() && marks_cycles_.load(std::memory_order_relaxed)) put({EventKind::kCycle, {}, {}, when, {}});
}

void Timeline::put(Event event) {
  const std::lock_guard lock(mutex_);
  if (pending_.size() >= kMaxPending) {
    ++dropped_;
    return;
  }
  pending_.push_back(std::move(event));
  if (pending_.size() == kMaxPending / 2) is_pending_.notify_one();
}

void Timeline::write_pending(const std::stop_token& stop) {
  std::vector<Event> events;
  for (;;) {
    const bool is_last = stop.stop_requested();
    {
      std::unique_lock lock(mutex_);
      if (!is_last) {
        is_pending_.wait_for(lock, stop, kFlushInterval, [&] { return pending_.size() >= kMaxPending / 2; });
      }
      events.swap(pending_);
    }
    for (const Event& event : events) write(event);
    if (!events.empty()) file_.flush();
    events.clear();
    if (is_last) return;
  }
}

void Timeline::write(const Event& event) {
  const double when = as_microseconds(event.when - origin_);
  if (event.kind == EventKind::kCycle) {
    write_line(fmt::format(R"({{"name": "CYCLE_START", "ph": "i", "s": "g", "pid": 0, "ts": {:.3f}}})", when));
    return;
  }
  Row& row = row_of(event.tensor);
  switch (event.kind) {
    case EventKind::kBegin:
      ++row.open;
      write_line(fmt::format(R"({{"name": {}, "ph": "B", "pid": {}, "tid": 0, "ts": {:.3f}}})", quoted(event.activity),
                             row.number, when));
      break;
    case EventKind::kSpan:
      write_line(fmt::format(R"({{"name": {}, "ph": "X", "pid": {}, "tid": 0, "ts": {:.3f}, "dur": {:.3f}}})",
                             quoted(event.activity), row.number, when, as_microseconds(event.length)));
      break;
    default:
      for (; row.open > 0; --row.open) {
        write_line(fmt::format(R"({{"ph": "E", "pid": {}, "tid": 0, "ts": {:.3f}}})", row.number, when));
      }
  }
}

void Timeline::write_line(const std::string& line) {
  if (!std::exchange(is_first_line_, false)) file_ << ",\n";
  file_ << line;
}

Timeline::Row& Timeline::row_of(const std::string& tensor) {
  const auto [found, is_new] = rows_.try_emplace(tensor, Row{static_cast<int>(rows_.size()) + 1, 0});
  if (is_new) {
    const int number = found->second.number;
    write_line(fmt::format(R"({{"name": "process_name", "ph": "M", "pid": {}, "args": {{"name": {}}}}})", number,
                           quoted(tensor)));
    write_line(fmt::format(R"({{"name": "process_sort_index", "ph": "M", "pid": {}, "args": {{"sort_index": {}}}}})",
                           number, number));
  }
  return found->second;
}

}  // namespace farandole
