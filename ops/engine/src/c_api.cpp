// SPDX-License-Identifier: Apache-2.0
// Implementation of the C header: translates structures and errors. No exception crosses the C functions, and no null
// pointer is dereferenced.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "checked_request.h"
#include "farandole/core/version.h"
#include "farandole/internal/c_interface.h"
#include "farandole/internal/communicator_access.h"
#include "farandole/internal/forked_children.h"
#include "farandole/internal/log.h"
#include "farandole/sdk/device.h"
#include "process.h"

namespace farandole {
namespace {

/// The running engine of this process. Not destroyed at exit, because libraries that the engine needs may be gone by
/// then; a program that wants to leave the job calls farandole_shutdown.
struct EngineSlot {
  std::shared_ptr<EngineProcess> process;
  bool is_starting = false;
};

/// Empties the slot in a forked child, where the engine, or a start in progress, is the parent's.
void become_child(EngineSlot& slot) {
  if (slot.process) keep_until_the_end(std::move(slot.process));
  slot = {};
}
using ProcessSlot = ProcessState<EngineSlot, become_child>;

/// Lock of the thread that starts the engine.
using StartLock = FlagLock<ProcessSlot, &EngineSlot::is_starting>;

/// Returns the engine. @param function  caller's name, for the error   @throws InvalidArgument  there is no engine
EngineProcess& running_engine(const std::shared_ptr<EngineProcess>& process, const char* function) {
  if (process) return *process;
  check_not_forked();
  throw InvalidArgument(fmt::format("{}: call farandole_init first", function));
}

std::int32_t copy_out(const std::vector<int>& values, std::int32_t* to, std::int32_t capacity) {
  if (to == nullptr) capacity = 0;
  for (std::int32_t i = 0; i < capacity && static_cast<std::size_t>(i) < values.size(); ++i) {
    to[i] = values[static_cast<std::size_t>(i)];
  }
  return static_cast<std::int32_t>(values.size());
}

farandole_place place_of(const EngineProcess& process) {
  const Topology& topology = process.world().topology();
  const int rank = process.communicator.rank();
  const RankInfo& self = topology.rank(rank);
  farandole_place place{};
  place.rank = rank;
  place.size = topology.size();
  place.local_rank = self.local_rank;
  place.local_size = self.local_size;
  place.host_index = self.host_index;
  place.host_count = topology.host_count();
  place.is_homogeneous = 1;
  for (int other = 0; other < topology.size(); ++other) {
    const RankInfo& info = topology.rank(other);
    if (info.local_size != self.local_size) place.is_homogeneous = 0;
    if (info.local_rank != self.local_rank) continue;
    if (other < rank) ++place.cross_rank;
    ++place.cross_size;
  }
  return place;
}

WorldOptions world_options(const farandole_init_options* from) {
  WorldOptions world;
  const auto options = known_options(from, "farandole_init", "farandole_init_options");
  if (options.expected_size < 0) {
    throw InvalidArgument(fmt::format("farandole_init: expected_size is {}; it must be a number of ranks, or 0 for any",
                                      options.expected_size));
  }
  world.expected_size = options.expected_size;
  if (options.has_mpi_communicator != 0) world.mpi_communicator = options.mpi_communicator;
  return world;
}

std::string library_path() {
  Dl_info info{};
  return dladdr(reinterpret_cast<const void*>(&farandole_version), &info) != 0 ? info.dli_fname : "";
}

nlohmann::json description() {
  nlohmann::json text{{"version", version()}, {"library", library_path()}, {"build", build_id()}};
  const auto process = engine_process();
  text["initialized"] = process != nullptr;
  const Settings settings = process ? process->world().settings() : Settings::from_environment();
  text["plugins"] = available_backends(settings);
  text["device_plugins"] = available_device_plugins(settings);
  nlohmann::json& variables = text["settings"];
  for (const SettingInfo& info : settings_table()) variables[std::string(info.variable)] = value_text(settings, info);
  if (!process) return text;
  const farandole_place place = place_of(*process);
  text["rank"] = place.rank;
  text["size"] = place.size;
  text["hosts"] = place.host_count;
  text["backend"] = process->world().backend_name();
  text["mpi"] = process->world().backend_description();
  text["transport"] = internals(process->communicator).transport();
  text["shares_memory"] = process->communicator.shares_memory();
  return text;
}

}  // namespace

std::shared_ptr<EngineProcess> engine_process() {
  return ProcessSlot::access()->process;
}

std::shared_ptr<EngineProcess> exchange_engine_process(std::shared_ptr<EngineProcess> process) {
  ProcessSlot::access()->process.swap(process);
  return process;
}

}  // namespace farandole

using namespace farandole;  // NOLINT: this file is the C face of the namespace

extern "C" {

int farandole_init(const farandole_init_options* options, farandole_error** error) {
  return guarded(error, [&] {
    const WorldOptions world = world_options(options);
    const StartLock one_at_a_time;
    if (engine_process()) return;
    exchange_engine_process(std::make_shared<EngineProcess>(world));
  });
}

int farandole_shutdown(farandole_error** error) {
  return guarded(error, [] {
    if (const auto process = engine_process()) process->engine.leave();
    const auto last = exchange_engine_process(nullptr);
    // Wait until this thread holds the last reference, because this thread must destroy the engine: the engine's own
    // thread could not join itself. Other threads' calls end soon, because nothing is pending any more.
    while (last.use_count() > 1) std::this_thread::sleep_for(std::chrono::microseconds(100));
  });
}

int farandole_is_initialized(void) {
  return value_or(0, [] { return engine_process() != nullptr ? 1 : 0; });
}
int farandole_check_not_forked(farandole_error** error) {
  return guarded(error, [] {
    if (!engine_process()) check_not_forked();
  });
}

void farandole_abort(const char* text) {
  (void)guarded(nullptr, [&] {
    if (const auto process = engine_process()) process->engine.abort(std::string(text_or_none(text)));
  });
}

void farandole_get_place(farandole_place* place) {
  if (place == nullptr) return;
  farandole_place found{};
  std::fill_n(&found.rank, 9, -1);
  (void)guarded(nullptr, [&] {
    if (const auto process = engine_process()) found = place_of(*process);
  });
  fill_known_part(place, found);
}

char* farandole_describe(void) {
  std::string text;
  if (guarded(nullptr, [&] { text = description().dump(); }) != 0) text = "{}";
  return strdup(text.c_str());
}
void farandole_text_free(char* text) {
  free(text);  // NOLINT: of strdup
}
const char* farandole_version(void) {
  return version().data();
}
const char* farandole_library_path(void) {
  return value_or("", [] {
    static const std::string path = library_path();
    return path.c_str();
  });
}
void farandole_log(int32_t level, const char* text) {
  (void)guarded(nullptr, [&] {
    if (text != nullptr)
      log(static_cast<LogLevel>(std::clamp(level, 0, static_cast<int32_t>(LogLevel::kError))), text_or_none(text));
  });
}

int farandole_add_process_set(const int32_t* ranks, int32_t count, int32_t* process_set, farandole_error** error) {
  return guarded(error, [&] {
    const auto process = engine_process();
    TensorEngine& engine = running_engine(process, "farandole_add_process_set").engine;
    const int size = engine.communicator().size();
    // Report the invalid call to the other ranks, so that they do not wait for this rank.
    if (ranks == nullptr || process_set == nullptr) {
      engine.refuse_set_change(
          fmt::format("farandole_add_process_set: {} is NULL", ranks == nullptr ? "ranks" : "process_set"));
    }
    if (count < 1 || count > size) {
      engine.refuse_set_change(fmt::format(
          "farandole_add_process_set: count is {}; a process set has 1 to {} ranks of this job", count, size));
    }
    *process_set = engine.add_process_set({ranks, ranks + count});
  });
}
int farandole_remove_process_set(int32_t process_set, farandole_error** error) {
  return guarded(error, [&] {
    const auto process = engine_process();
    running_engine(process, "farandole_remove_process_set").engine.remove_process_set(process_set);
  });
}
int32_t farandole_process_set_ranks(int32_t process_set, int32_t* ranks, int32_t capacity) {
  return value_or(-1, [&] {
    const auto process = engine_process();
    const auto found = process ? process->engine.ranks_of(process_set) : std::nullopt;
    return found ? copy_out(*found, ranks, capacity) : -1;
  });
}
int32_t farandole_process_sets(int32_t* ids, int32_t capacity) {
  return value_or(0, [&] {
    const auto process = engine_process();
    return process ? copy_out(process->engine.process_sets(), ids, capacity) : 0;
  });
}

uint64_t farandole_generation(int32_t process_set) {
  return value_or(std::uint64_t{0}, [&] {
    const auto process = engine_process();
    return process ? process->engine.generation(process_set) : 0;
  });
}

int farandole_submit(const farandole_request* request, farandole_error** error) {
  return guarded(error, [&] {
    const farandole_request known = known_request(request);
    const auto process = engine_process();
    TensorEngine& engine = running_engine(process, "farandole_submit").engine;
    const auto ranks = engine.ranks_of(known.process_set);
    if (!ranks) {
      throw InvalidArgument(
          fmt::format("request '{:.1024}': there is no process set {}", text_or_none(known.name), known.process_set));
    }
    LocalRequest checked;
    try {
      checked = checked_request(known, *ranks);
      engine.prepare(checked);
    } catch (const Error& refused) {
      engine.refuse(refusal_of(known, refused.message()));
      throw;
    }
    engine.submit(std::move(checked));
  });
}

void farandole_refuse(const farandole_request* request, const char* why) {
  (void)guarded(nullptr, [&] {
    const farandole_request known = known_request(request);
    if (const auto process = engine_process()) process->engine.refuse(refusal_of(known, text_or_none(why)));
  });
}

void farandole_wait_until(const volatile int32_t* flag) {
  if (flag == nullptr) return;
  (void)guarded(nullptr, [flag] {
    const auto is_set = [flag] { return __atomic_load_n(flag, __ATOMIC_ACQUIRE) != 0; };
    if (const auto process = engine_process()) process->engine.wait_until(is_set);
  });
}

int farandole_join(int32_t process_set, void* context, void (*done)(void*, const farandole_error*, int32_t),
                   farandole_error** error) {
  return guarded(error, [&] {
    need(done, "farandole_join", "done");
    const auto process = engine_process();
    running_engine(process, "farandole_join").engine.join(process_set, context, done);
  });
}

int farandole_start_timeline(const char* path, int32_t mark_cycles, farandole_error** error) {
  return guarded(error, [&] {
    need(path, "farandole_start_timeline", "path");
    const auto process = engine_process();
    running_engine(process, "farandole_start_timeline").engine.start_timeline(path, mark_cycles != 0);
  });
}
int farandole_stop_timeline(farandole_error** error) {
  return guarded(error, [] {
    const auto process = engine_process();
    running_engine(process, "farandole_stop_timeline").engine.stop_timeline();
  });
}

void farandole_get_counters(farandole_counters* counters) {
  if (counters == nullptr) return;
  farandole_counters found{};
  (void)guarded(nullptr, [&] {
    if (const auto process = engine_process()) found = process->engine.counters();
  });
  fill_known_part(counters, found);
}

}  // extern "C"
