// SPDX-License-Identifier: Apache-2.0
#include "farandole/collectives/tuning.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>

#include "farandole/core/error.h"
#include "farandole/internal/choice.h"
#include "farandole/internal/json_depth.h"

namespace farandole {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kFormat = 1;
constexpr std::size_t kMaxShown = 60;  // bytes of a value in a message
constexpr std::size_t kMaxTextBytes = 64;
constexpr const char* kCollectives = "collectives";
constexpr const char* kDeviceCollectives = "device_collectives";

/// `text` or its beginning, for messages.
std::string shortened(std::string text) {
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "…";
  return text;
}

/// A JSON value and its place in the file, which messages name.
class Node {
 public:
  Node(const Json& json, std::string place) : json_(json), place_(std::move(place)) {}

  [[noreturn]] void refuse(std::string_view expected) const {
    const std::string came = json_.dump(-1, ' ', false, Json::error_handler_t::replace);
    throw DataError(fmt::format("{} is {}; it must be {}", place_, shortened(came), expected));
  }
  /// Requires an object that has no keys but these.
  void allow_only(std::initializer_list<std::string_view> keys) const {
    if (!json_.is_object()) refuse("an object");
    for (const auto& [key, value] : json_.items()) {
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
      throw DataError(fmt::format("{} has '{}'{}; known are {}", place_, shortened(key),
                                  suggestion(key, std::vector<std::string_view>(keys)), fmt::join(keys, ", ")));
    }
  }
  bool has(const char* key) const { return json_.contains(key); }
  Node at(const char* key) const {
    if (!json_.is_object()) refuse("an object");
    const auto found = json_.find(key);
    if (found == json_.end()) throw DataError(fmt::format("{} has no {}", place_, key));
    return {*found, fmt::format("{}, {}", place_, key)};
  }
  std::vector<Node> list() const {
    if (!json_.is_array()) refuse("a list");
    std::vector<Node> nodes;
    for (const Json& entry : json_) nodes.emplace_back(entry, fmt::format("{}, entry {}", place_, nodes.size() + 1));
    return nodes;
  }
  std::string text() const {
    if (!json_.is_string() || json_.get_ref<const std::string&>().size() > kMaxTextBytes) {
      refuse(fmt::format("a text of at most {} bytes", kMaxTextBytes));
    }
    return json_.get<std::string>();
  }
  template <class Number>
  Number whole_number() const {
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<Number>::max());
    if (!json_.is_number_unsigned() || json_.get<std::uint64_t>() > kMax) refuse("a whole number, not negative");
    return json_.get<Number>();
  }
  double number() const {
    if (!json_.is_number()) refuse("a number");
    return json_.get<double>();
  }

 private:
  const Json& json_;
  std::string place_;
};

Json parse_json(std::string_view text) {
  if (const int depth = json_depth(text); depth > kMaxJsonDepth) {
    throw DataError(
        fmt::format("lists and objects lie {} deep in each other; no table has more than {}", depth, kMaxJsonDepth));
  }
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    const std::size_t end = std::min<std::size_t>(error.byte, text.size());
    const std::string_view before = text.substr(0, end);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    throw DataError(fmt::format("line {}: this is not JSON{}", line,
                                text.empty() ? ", the file is empty" : fmt::format(" (at byte {})", error.byte)));
  } catch (const Json::out_of_range& error) {
    throw DataError(fmt::format("a number is too large: {}", shortened(error.what())));
  }
}

TuningTable::Entry read_entry(const Node& node) {
  node.allow_only({"up_to_bytes", "algorithm", "segments", "time_us"});
  return {node.at("up_to_bytes").whole_number<std::size_t>(), node.at("algorithm").text(),
          node.at("segments").whole_number<int>(), node.at("time_us").number()};
}

void read_entries(const Node& collectives, TuningTable::Entries& entries) {
  collectives.allow_only({name(Collective::kAllreduce), name(Collective::kBroadcast), name(Collective::kReduce),
                          name(Collective::kAllgather), name(Collective::kReduceScatter), name(Collective::kGather),
                          name(Collective::kScatter), name(Collective::kAlltoall), name(Collective::kBarrier)});
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::string key(name(static_cast<Collective>(i)));
    if (!collectives.has(key.c_str())) continue;
    for (const Node& node : collectives.at(key.c_str()).list()) entries[i].push_back(read_entry(node));
  }
}

TuningTable read_table(const Node& root) {
  root.allow_only({"format", "measured_on", "shared_memory", kCollectives, kDeviceCollectives});
  if (root.at("format").whole_number<int>() != kFormat) root.at("format").refuse(fmt::format("{}", kFormat));
  TuningTable table;
  const Node measured_on = root.at("measured_on");
  measured_on.allow_only({"ranks", "hosts", "transport", "version"});
  table.shape = {measured_on.at("ranks").whole_number<int>(), measured_on.at("hosts").whole_number<int>(),
                 measured_on.at("transport").text()};
  table.version = measured_on.at("version").text();
  if (root.has("shared_memory")) {
    const Node limits = root.at("shared_memory");
    limits.allow_only({"one_shot_bytes", "slice_bytes"});
    if (limits.has("one_shot_bytes")) table.one_shot_bytes = limits.at("one_shot_bytes").whole_number<std::size_t>();
    if (limits.has("slice_bytes")) table.slice_bytes = limits.at("slice_bytes").whole_number<std::size_t>();
  }
  // A table has at least one of the two lists.
  if (root.has(kCollectives) || !root.has(kDeviceCollectives)) read_entries(root.at(kCollectives), table.entries);
  if (root.has(kDeviceCollectives)) read_entries(root.at(kDeviceCollectives), table.device_entries);
  return table;
}

/// Writes one entry per line, for people who read the file.
std::string json_of(const TuningTable::Entries& entries) {
  std::string text = "{";
  std::string_view separator = "\n";
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].empty()) continue;
    text += fmt::format("{}  \"{}\": [", separator, name(static_cast<Collective>(i)));
    std::string_view comma = "\n";
    for (const TuningTable::Entry& entry : entries[i]) {
      const Json json{{"up_to_bytes", entry.up_to_bytes},
                      {"algorithm", entry.algorithm},
                      {"segments", entry.segments},
                      {"time_us", entry.time_us}};
      text += fmt::format("{}   {}", comma, json.dump());
      comma = ",\n";
    }
    text += "\n  ]";
    separator = ",\n";
  }
  return text + "\n }";
}

bool has_some(const TuningTable::Entries& entries) {
  return std::any_of(entries.begin(), entries.end(), [](const auto& list) { return !list.empty(); });
}

}  // namespace

std::string describe(const TuningShape& shape) {
  return fmt::format("{} rank{} on {} host{}, {}", shape.ranks, shape.ranks == 1 ? "" : "s", shape.hosts,
                     shape.hosts == 1 ? "" : "s", shape.transport);
}

bool vendor_agrees(DType dtype, ReduceOp op) {
  if (is_bitwise(op)) return is_defined(op, dtype) && dtype != DType::kBool;
  const bool fits = size_in_bytes(dtype) > 2 || is_floating_point(dtype);
  return fits && op != ReduceOp::kMin && op != ReduceOp::kMax;
}

const TuningTable::Entry* TuningTable::find(Collective collective, std::size_t bytes, MemoryKind memory) const {
  const std::vector<Entry>& list = of(collective, memory);
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const Entry& entry) { return bytes <= entry.up_to_bytes; });
  return found == list.end() ? nullptr : &*found;
}

std::string TuningTable::to_json() const {
  const Json measured_on{
      {"ranks", shape.ranks}, {"hosts", shape.hosts}, {"transport", shape.transport}, {"version", version}};
  std::string text = fmt::format("{{\n \"format\": {},\n \"measured_on\": {},\n", kFormat, measured_on.dump());
  Json limits = Json::object();
  if (one_shot_bytes) limits["one_shot_bytes"] = *one_shot_bytes;
  if (slice_bytes) limits["slice_bytes"] = *slice_bytes;
  if (!limits.empty()) text += fmt::format(" \"shared_memory\": {},\n", limits.dump());
  const bool on_devices = has_some(device_entries);
  if (has_some(entries) || !on_devices) {
    text += fmt::format(" \"{}\": {}{}", kCollectives, json_of(entries), on_devices ? ",\n" : "");
  }
  if (on_devices) text += fmt::format(" \"{}\": {}", kDeviceCollectives, json_of(device_entries));
  return text + "\n}\n";
}

TuningTable TuningTable::parse(std::string_view text, const std::string& file) {
  try {
    const Json json = parse_json(text);
    TuningTable table = read_table({json, "the table"});
    table.check();
    table.file = file;
    return table;
  } catch (const Error& error) {
    throw DataError(fmt::format("{}: {}", file, error.message()));
  }
}

}  // namespace farandole
