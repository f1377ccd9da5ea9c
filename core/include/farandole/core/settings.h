// SPDX-License-Identifier: Apache-2.0
// Settings: one table from which come the environment variables, --help, farandole-info --config and
// docs/configuration.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

using Seconds = std::chrono::duration<double>;

/// All settings of a process, with their defaults. Read from the environment once, when a World is made. More than 15
/// members: one for each variable.
struct Settings {
  // How collectives run; rank 0's values hold for all ranks.
  std::string allreduce = "auto";
  std::string broadcast = "auto";
  std::string reduce = "auto";
  std::string allgather = "auto";
  std::string reduce_scatter = "auto";
  std::string gather = "auto";
  std::string scatter = "auto";
  std::int64_t segment_bytes = 256 << 10;
  std::string f16_average = "divide_first";
  bool check = true;
  std::string shared_memory = "on";
  std::int64_t one_shot_bytes = 4 << 10;
  std::int64_t slice_bytes = 512 << 10;
  std::int64_t single_copy_bytes = 1 << 20;
  std::int64_t non_temporal_bytes = 16 << 20;
  std::int64_t window_bytes = 0;
  std::string tuning;
  std::int64_t bucket_bytes = 4 << 20;
  std::int64_t last_bucket_bytes = 256 << 10;
  std::int64_t fusion_bytes = 8 << 20;
  // Waiting and faults.
  Seconds timeout{0};
  Seconds warn_after{30};
  std::string liveness = "auto";
  std::string flight_directory = "off";
  std::string timeline = "off";
  bool timeline_cycles = false;
  // Joining a job.
  std::string mpi = "auto";
  std::string network = "auto";
  std::string network_interface;
  Seconds peer_timeout{60};
  std::string plugin_directory;
  std::string host_id;
  std::int64_t rank = -1;
  std::int64_t size = -1;
  std::string job;
  std::string rendezvous;
  std::string job_key;
  std::string job_key_file;
  std::int64_t job_key_descriptor = -1;
  bool trust_network = false;
  std::string pmix_library;
  // Devices.
  std::string cuda = "auto";
  std::string device = "auto";
  std::string cuda_library;
  std::string nccl_library;
  std::int64_t device_slice_bytes = 1 << 20;
  // This process.
  bool tensorflow_windows = true;
  std::string log_level = "warning";
  std::string isa = "auto";

  /// Reads the FARANDOLE_* variables of the environment.
  /// @throws InvalidArgument  a value is malformed or out of range, or a FARANDOLE_* variable does not exist (with the
  /// nearest one).
  static Settings from_environment();
  /// The same from a list of "NAME=value" strings.
  static Settings parse(std::span<const std::string> variables);
};

/// One row of the table.
struct SettingInfo {
  using Member = std::variant<std::string Settings::*, std::int64_t Settings::*, bool Settings::*, Seconds Settings::*>;

  std::string_view variable;              ///< FARANDOLE_…
  Member member;                          ///< where the value lives
  std::string_view unit;                  ///< "bytes", "seconds", "" …
  double minimum = 0, maximum = 0;        ///< for numbers
  std::vector<std::string_view> choices;  ///< for texts with a fixed set of values, else empty
  bool agreed = false;                    ///< rank 0's value holds for all ranks
  std::string_view meaning;
  bool secret = false;  ///< no message shows the value
};

/// Every setting, in the order of the documentation. Each layer of the library contributes its rows.
std::span<const SettingInfo> settings_table();

/// The value of one setting as text, in the form that its variable accepts; "(secret)" for one that is.
std::string value_text(const Settings& settings, const SettingInfo& info);

/// What the variable accepts: "one of auto, ring", "bytes from 64 to 1GiB".
std::string expected_text(const SettingInfo& info);

/// The whole of docs/configuration.md.
std::string settings_markdown();

/// The agreed settings as one text, and back; what rank 0 sends to its peers.
std::string encode_agreed(const Settings& settings);
/// Overwrites the agreed settings and returns a description of each one that differed.
std::vector<std::string> adopt_agreed(Settings& settings, std::string_view encoded);

/// The entry of `candidates` closest to `word` by edit distance, if one is close enough to be what was meant.
std::optional<std::string_view> nearest(std::string_view word, std::span<const std::string_view> candidates);

/// "64K", "4MiB", "1000" → bytes. @throws InvalidArgument
std::int64_t parse_bytes(std::string_view text);

}  // namespace FARANDOLE_API
