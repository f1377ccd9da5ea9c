// SPDX-License-Identifier: Apache-2.0
// farandole-info: prints how this build behaves in this environment.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/program_options.hpp>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "command_line.h"
#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "farandole/core/reduce.h"
#include "farandole/core/settings.h"
#include "farandole/core/version.h"
#include "farandole/core/world.h"
#include "farandole/internal/communicator_access.h"
#include "farandole/internal/error_report.h"
#include "farandole/internal/limits.h"
#include "farandole/internal/waiter.h"
#include "farandole/sdk/backend.h"
#include "farandole/sdk/device.h"
#include "farandole/sdk/transport.h"
#include "program.h"

namespace farandole {
namespace {

namespace po = boost::program_options;

tools::Program describe_program() {
  tools::Program program;
  program.name = "farandole-info";
  program.purpose = "say what this build and this environment would do";
  program.description = {
      "Prints the version, the build, the plug-ins that are there, the backend that a job would use and why, the "
      "devices that it could use or why there are none, the settings that differ from their defaults, and the limits "
      "of the machine.",
      "With --config, all settings; with --explain, which algorithm would run a collective, and why."};
  tools::OptionGroup& options = program.options.emplace_back("Options");
  options.options.add_options()                     //
      ("json", "print the default report as JSON")  //
      ("config", po::value<std::string>()->implicit_value("text")->value_name("text|markdown"),
       "print all settings; markdown is docs/configuration.md")  //
      ("explain", po::value<std::vector<std::string>>()->multitoken()->value_name("COLLECTIVE BYTES"),
       "say which algorithm would run in this job and why, e.g. allreduce 1MiB; also under farandole-run")  //
      ("size", po::value<std::string>()->value_name("N"),
       "with --explain: for a job of N ranks that are threads of one process")  //
      ("memory", po::value<std::string>()->value_name("host|device"),
       "with --explain: for vectors in this memory; host by default");
  tools::add_common_options(options);
  program.values = {{"COLLECTIVE", tools::collective_names()}};
  program.examples = {
      {"farandole-info --explain allreduce 1MiB --size 4", "Which algorithm four threads would use:"},
      {"farandole-run -np 2 farandole-info --explain allreduce 1MiB", "Which one two processes would use:"},
      {"farandole-info --config", "All settings, with their meanings, values and defaults:"}};
  program.see_also = {"farandole-bench", "farandole-schedule"};
  return program;
}

struct Devices {
  std::string version;  ///< "CUDA: driver 580.159 (CUDA 13.0), NCCL 2.28.9"; empty if no device can be used
  std::string reason;   ///< why no device can be used; empty if some can
  std::vector<DeviceInfo> list;
  std::string collectives_missing;  ///< why the devices have no collectives; empty if they have
  std::vector<std::string> warnings;
};

Devices find_devices(const Settings& settings) {
  const DeviceAvailability& found = device_runtime(settings);
  if (found.runtime == nullptr) return {{}, found.reason, {}, {}, {}};
  DeviceRuntime& runtime = *found.runtime;
  return {fmt::format("{}: {}", runtime.name(), runtime.version()),
          {},
          runtime.devices(),
          runtime.collectives_missing(),
          runtime.warnings()};
}

struct Report {
  std::vector<std::string> plugins;
  BackendChoice backend;
  Devices devices;
  std::vector<const SettingInfo*> changed;  ///< settings that differ from their defaults
  std::vector<LimitReport> limits;
};

Report make_report(const Settings& settings) {
  Report report{available_backends(settings),
                choose_backend(settings, JoinOptions{}),
                find_devices(settings),
                {},
                report_limits(settings)};
  const Settings defaults;
  for (const SettingInfo& info : settings_table()) {
    if (value_text(settings, info) != value_text(defaults, info)) report.changed.push_back(&info);
  }
  return report;
}

std::string capability(const DeviceInfo& device) {
  return fmt::format("{}.{}", device.compute_capability / 10, device.compute_capability % 10);
}

void print_devices(const Devices& devices) {
  for (const DeviceInfo& device : devices.list) {
    fmt::print("  {}: {}, {:.1f} GiB, compute capability {}, {}\n", device.ordinal, device.name,
               static_cast<double>(device.memory_bytes) / (1 << 30), capability(device), device.identity);
  }
  if (!devices.collectives_missing.empty()) fmt::print("  no collectives: {}\n", devices.collectives_missing);
  for (const std::string& warning : devices.warnings) fmt::print("  warning: {}\n", warning);
}

/// Usable cores: "4", or "2 (of 4: the quota of the control group /x)".
std::string cores_text() {
  const std::size_t allowed = allowed_cores().count();
  const auto usable = static_cast<std::size_t>(usable_cores());
  return usable == allowed ? fmt::format("{}", allowed)
                           : fmt::format("{} (of {}: {})", usable, allowed, cpu_quota_owner());
}

void print_report(const Settings& settings) {
  const Report report = make_report(settings);
  const auto line = [](std::string_view label, const std::string& text) { fmt::print("{:<17}{}\n", label, text); };
  line("version", std::string(version()));
  line("build", build_id());
  line("layout", layout_id());
  line("instruction set", std::string(name(active_isa())));
  line("allowed cores", cores_text());
  line("plug-ins", report.plugins.empty() ? "none" : fmt::format("{}", fmt::join(report.plugins, ", ")));
  line("backend",
       fmt::format("{} ({})", report.backend.plugin.empty() ? "none" : report.backend.plugin, report.backend.reason));
  line("devices",
       report.devices.reason.empty() ? report.devices.version : fmt::format("none ({})", report.devices.reason));
  print_devices(report.devices);
  line("settings", report.changed.empty() ? "all have their defaults" : "these differ from their defaults:");
  for (const SettingInfo* info : report.changed) {
    fmt::print("  {}={} (default: {})\n", info->variable, value_text(settings, *info), value_text(Settings{}, *info));
  }
  line("limits", "docs/limits.md says what each costs");
  for (const LimitReport& limit : report.limits) {
    fmt::print("  {}: {}{}{}\n", limit.name, limit.value, limit.effect.empty() ? "" : "; ", limit.effect);
  }
}

nlohmann::ordered_json devices_as_json(const Devices& devices) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const DeviceInfo& device : devices.list) {
    list.push_back({{"ordinal", device.ordinal},
                    {"name", device.name},
                    {"identity", device.identity},
                    {"memory_bytes", device.memory_bytes},
                    {"compute_capability", capability(device)}});
  }
  return {{"version", devices.version},
          {"reason", devices.reason},
          {"list", list},
          {"collectives_missing", devices.collectives_missing},
          {"warnings", devices.warnings}};
}

void print_json_report(const Settings& settings) {
  const Report report = make_report(settings);
  nlohmann::ordered_json changed = nlohmann::ordered_json::object();
  for (const SettingInfo* info : report.changed) changed[std::string(info->variable)] = value_text(settings, *info);
  nlohmann::ordered_json limits = nlohmann::ordered_json::object();
  for (const LimitReport& limit : report.limits)
    limits[limit.name] = {{"value", limit.value}, {"effect", limit.effect}};
  const nlohmann::ordered_json json{{"version", version()},
                                    {"build", build_id()},
                                    {"layout", layout_id()},
                                    {"isa", name(active_isa())},
                                    {"allowed_cores", usable_cores()},
                                    {"plugins", report.plugins},
                                    {"backend", {{"plugin", report.backend.plugin}, {"reason", report.backend.reason}}},
                                    {"devices", devices_as_json(report.devices)},
                                    {"changed_settings", changed},
                                    {"limits", limits}};
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void print_settings(const Settings& settings, const std::string& format) {
  if (format == "markdown") {
    fmt::print("{}", settings_markdown());
    return;
  }
  if (format != "text") throw InvalidArgument(fmt::format("--config is '{}'; it must be text or markdown.", format));
  for (const SettingInfo& info : settings_table()) {
    const std::string default_value = value_text(Settings{}, info);
    fmt::print("{}={}\n    {}\n    default: {}; {}{}\n", info.variable, value_text(settings, info), info.meaning,
               default_value.empty() ? "empty" : default_value, expected_text(info),
               info.agreed ? "; rank 0's value holds for all ranks" : "");
  }
}

MemoryKind parse_memory(const std::string& text) {
  if (text == "host") return MemoryKind::kHost;
  if (text == "device") return MemoryKind::kCuda;
  throw InvalidArgument(fmt::format("--memory is '{}'; it must be host or device.", text));
}

void explain(const std::vector<std::string>& words, MemoryKind memory, std::optional<int> size, ErrorReport& errors) {
  if (words.size() != 2) {
    throw InvalidArgument("--explain needs a collective and a number of bytes, e.g. --explain allreduce 1MiB.");
  }
  const Collective collective = parse_collective(words[0]);
  const auto bytes = static_cast<std::size_t>(parse_bytes(words[1]));
  const auto print = [&](Communicator& communicator) {
    if (communicator.rank() == 0) fmt::print("{}", internals(communicator).explain(collective, bytes, memory));
  };
  if (size) {
    run_replicas(*size, print);
  } else {
    World world;
    run_replicas(world, [&](Communicator& ranks) { errors.print_errors_of(ranks, [&] { print(ranks); }); });
    if (world.rank() == 0 && world.topology().host_count() > 1) {
      fmt::print("Between hosts: {}.\n", world.network_description());
    }
  }
}

void run(const po::variables_map& options, ErrorReport& errors) {
  const bool with_explain = options.count("explain") != 0;
  if (options.count("json") + options.count("config") + options.count("explain") > 1) {
    throw InvalidArgument("--json, --config and --explain print different things; give one of them.");
  }
  for (const char* const name : {"size", "memory"}) {
    if (options.count(name) == 0 || with_explain) continue;
    throw InvalidArgument(fmt::format("--{} is only of use with --explain.", name));
  }
  // The page of all settings does not depend on the environment, so print it even if a setting is invalid.
  if (options.count("config") != 0 && options["config"].as<std::string>() == "markdown") {
    print_settings(Settings{}, "markdown");
    return;
  }
  const Settings settings = Settings::from_environment();
  if (options.count("config") != 0) {
    print_settings(settings, options["config"].as<std::string>());
  } else if (with_explain) {
    explain(options["explain"].as<std::vector<std::string>>(),
            parse_memory(options.count("memory") != 0 ? options["memory"].as<std::string>() : "host"),
            options.count("size") != 0
                ? std::optional(tools::parse_number(options["size"].as<std::string>(), 1, kMaxReplicas, "--size"))
                : std::nullopt,
            errors);
  } else if (options.count("json") != 0) {
    print_json_report(settings);
  } else {
    print_report(settings);
  }
}

int main_with(int argc, char** argv) {
  ErrorReport errors("farandole-info");
  return errors.exit_status([&] {
    const tools::Program program = describe_program();
    const po::variables_map options = errors.print_errors_of_command_line([&] {
      return tools::parse_options({argv + 1, argv + argc}, program.options);
    });
    if (tools::answer(options, program)) return kExitDone;
    run(options, errors);
    tools::check_standard_output();
    return kExitDone;
  });
}

}  // namespace
}  // namespace farandole

int main(int argc, char** argv) {
  return farandole::main_with(argc, argv);
}
