// SPDX-License-Identifier: Apache-2.0
// Settings of the library, which users change by environment variables.
//
// A field is described in two places: here for programmers, with its default, unit and consequence, and in a row of the
// table of settings (SettingInfo) for users. The environment variables, `farandole-info --config` and
// docs/configuration.md are made from the table. Each layer contributes the rows of the fields that it reads.
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

/// How collectives run, on every transport. Rank 0's values hold for all ranks.
struct CollectiveSettings {
  /// Algorithm of each collective, by the names in docs/algorithms.md. "auto": the algorithm in the tuning table, else
  /// shared memory, else the algorithm with the lowest cost in the cost model. A communicator of all ranks raises
  /// InvalidArgument if the algorithm cannot run a call; a communicator of fewer ranks then selects as by "auto".
  std::string allreduce = "auto";
  std::string broadcast = "auto";
  std::string reduce = "auto";
  std::string allgather = "auto";
  std::string reduce_scatter = "auto";
  std::string gather = "auto";
  std::string scatter = "auto";

  /// Bytes per segment in pipelined algorithms. Smaller segments overlap better; larger segments need fewer messages.
  std::int64_t segment_bytes = 256 << 10;

  /// Whether an f16 average divides before or after the sum. Holds where ranks exchange f16 sums: in messages, and on
  /// devices. "divide_first": each rank divides its contribution, so no sum overflows. "divide_last": the sum is
  /// divided, so small numbers keep their digits.
  std::string f16_average = "divide_first";

  /// "on": ranks compare their calls before data is touched, and ranks that call different collectives raise Mismatch.
  /// Calls in the caller's device order (CommunicatorOptions::DeviceOrder::kCaller) are compared after they were
  /// enqueued. "strict": these calls, too, are compared before data is touched. "off": ranks that call different
  /// collectives hang or get wrong data.
  std::string check = "on";

  /// File of the tuning table that `farandole-bench --tune` writes. Rank 0 reads the file. Algorithm and size settings
  /// that differ from their defaults override the table. Empty: no table.
  std::string tuning;
};

/// How ranks of a host exchange data through shared memory. Rank 0's values hold for all ranks, except `window_bytes`.
struct SharedMemorySettings {
  /// "on": ranks of a host use shared memory, and threads of one process also access each other's ordinary buffers.
  /// "windows": threads access only each other's windows (memory of `Communicator::allocate`), as processes do. "off":
  /// ranks exchange messages.
  std::string mode = "on";

  /// Vectors of up to this many bytes are one-shot: each rank reads its peers' contributions after a single
  /// synchronization. The limit is 4 times as high on hosts with more ranks than cores.
  std::int64_t one_shot_bytes = 4 << 10;

  /// Longer vectors are processed in slices of this many bytes. Slices should fit into the caches.
  std::int64_t slice_bytes = 512 << 10;

  /// In collectives that only move data (no reduction), chunks of at least this many bytes in ordinary memory are
  /// copied once, directly from process to process (`process_vm_readv`), if the kernel permits. 0: never.
  std::int64_t single_copy_bytes = 1 << 20;

  /// If the results of all ranks of a host together exceed this many bytes, they are written by non-temporal stores. So
  /// are results of at least 1/16 of this size, if more than this many bytes of results have been written since the
  /// last result in the same output buffer. In-place results are written by ordinary stores.
  std::int64_t non_temporal_bytes = 16 << 20;

  /// Maximum total bytes of the windows of all ranks of a host; further allocations raise InvalidArgument. 0: the
  /// memory of the machine or of the control group. Each process's own value holds.
  std::int64_t window_bytes = 0;
};

/// How gradients are averaged (GradientAverager). Rank 0's values hold for all ranks.
struct GradientSettings {
  /// Maximum bytes of a bucket of gradients that are reduced together; a larger gradient is a bucket of its own. Larger
  /// buckets use the network better; smaller buckets begin earlier.
  std::int64_t bucket_bytes = 4 << 20;

  /// Maximum bytes of the bucket that is reduced last. The backward pass has ended by then, so no computation overlaps
  /// with this reduction.
  std::int64_t last_bucket_bytes = 256 << 10;
};

/// The engine of named tensors, and the frameworks that use it.
struct EngineSettings {
  /// Maximum bytes of a fusion buffer, in which small tensors that are ready together are packed. Rank 0's value holds
  /// for all ranks.
  std::int64_t fusion_bytes = 8 << 20;

  /// File to which rank 0 writes a trace in Chrome's format: when each named tensor is negotiated, waits and is moved.
  /// "off": no file.
  std::string timeline = "off";

  /// Rank 0 marks each negotiation in the timeline.
  bool timeline_cycles = false;

  /// Allocate TensorFlow's large CPU tensors in windows, so that collectives need no copy of them. Read when
  /// farandole.tensorflow is imported.
  bool tensorflow_windows = true;
};

/// Detection of faults and stalls. Rank 0's `timeout` and `warn_after` hold for all ranks.
struct FaultSettings {
  /// Maximum duration of a collective; a longer one raises Timeout on every rank. 0: no limit.
  Seconds timeout{0};

  /// A rank that waits longer in a collective logs which ranks are missing. It logs further warnings after pauses that
  /// double. In the engine of named tensors, ranks that all wait for each other and have been idle for a sixth of this
  /// time raise Mismatch. Ranks that wait for each other in a circle of several communicators raise Mismatch with the
  /// third warning.
  Seconds warn_after{30};

  /// How processes of a host detect that a peer has died. "pidfd": by a pidfd for each peer. "proc": reads
  /// /proc/<pid>/stat 20 times a second; for sandboxes that kill processes that call pidfd_open. "auto": "pidfd" if
  /// available, else "proc". "off": no detection.
  std::string liveness = "auto";

  /// Reaction to a fault of the job while a device still runs calls that were enqueued in the caller's device order.
  /// "exit": the process reports the fault, and ends a few seconds later, because the device may wait forever or
  /// compute with wrong data, and the program may never call Farandole again. "raise": the device's collectives are
  /// aborted, and the next call raises the fault.
  std::string device_fault = "exit";

  /// Directory to which each rank writes its last 1024 collectives when the job fails. "off": no files.
  std::string flight_directory = "off";
};

/// How this process finds and joins its job. Each process's own values hold.
struct LaunchSettings {
  /// "auto": the MPI that is loaded or that started the program. "openmpi", "mpich": this MPI. "pmix": no MPI; the
  /// launcher's PMIx gives each process its number. "off": no MPI; FARANDOLE_RANK or torchrun's variables still start a
  /// job.
  std::string mpi = "auto";

  /// Number of this process, and number of processes, in a job that no MPI starts. -1: not set.
  std::int64_t rank = -1;
  std::int64_t size = -1;

  /// Name of a job that no MPI starts. All its processes have the same name; no other job of the same user, or at the
  /// same rendezvous, may use the name at the same time.
  std::string job;

  /// Host of process 0 and a port, such as "node1:29500", for a job over several hosts that no MPI starts. Process 0
  /// listens at the first free port among this port and the next 8; the other processes connect to it.
  std::string rendezvous;

  /// Processes with different values of this text count as being on different hosts. For trying multi-host jobs on one
  /// machine.
  std::string host_id;

  /// File of the PMIx library. Empty: the PMIx that the process has loaded, else libpmix.so.2 from the loader's path,
  /// else from the usual directories of Debian and Open MPI.
  std::string pmix_library;
};

/// Connections between hosts. Rank 0's `transport` and `peer_timeout` hold for all ranks.
struct NetworkSettings {
  /// Transport between the hosts of a job that MPI has started: "mpi", or "tcp" for Farandole's own connections.
  /// "auto": "tcp" if every process can listen and can reach the next host, and no host has a fabric faster than TCP;
  /// else "mpi".
  std::string transport = "auto";

  /// Network interface of TCP connections, by name ("eth1") or network ("10.0.0.0/8"). Empty: the route decides.
  std::string interface;

  /// Ranks raise PeerLost if a host's kernel acknowledges nothing on its TCP connections for this long, or if no
  /// connection can be made for this long. A slow program does not count as lost, because its kernel still
  /// acknowledges.
  Seconds peer_timeout{60};

  /// Key (64 hexadecimal digits) of a job that no MPI starts, in one of three forms: the key itself, which is removed
  /// from the environment once read, and never shown; a file, which must belong to this user, have mode 0600, and not
  /// be a symbolic link; or an open file descriptor, which is closed once read (-1: not set).
  std::string job_key;
  std::string job_key_file;
  std::int64_t job_key_descriptor = -1;

  /// Allow a job that no MPI starts to run without a key. Any program that reaches one of its ports can then join, read
  /// its data, and send wrong data.
  bool trust_network = false;
};

/// Accelerators. Each process's own values hold, except rank 0's `slice_bytes`.
struct DeviceSettings {
  /// "auto": use CUDA if the plug-in, a driver and a device are present. "off": load nothing of CUDA.
  std::string cuda = "auto";

  /// Device number of this process's rank, or a list such as "0,2,1" with a number for each local rank. "auto": the
  /// only device, if the process sees a single device; else the device whose number is the local rank.
  std::string ordinals = "auto";

  /// File of CUDA's driver library. Empty: libcuda.so.1 from the loader's path.
  std::string cuda_library;

  /// File of NCCL. Empty: the NCCL that the process has loaded, else libnccl.so.2 from the loader's path.
  std::string nccl_library;

  /// File of cuBLAS, with which the trainer computes on devices. Empty: the cuBLAS that the process has loaded, else
  /// libcublas.so.13 or .12 from the loader's path.
  std::string cublas_library;
  /// File of cuDNN, with which the trainer computes convolutions on devices. Empty: the cuDNN that the process has
  /// loaded, else libcudnn.so.9 from the loader's path, else none. "off": none.
  std::string cudnn_library;

  /// Bytes per slice. Hierarchical collectives on device memory copy data for other hosts through pinned memory, slice
  /// by slice; a few slices are in flight at a time.
  std::int64_t slice_bytes = 1 << 20;
};

/// This process. Each process's own values hold.
struct ProcessSettings {
  /// Directory in which plug-ins are looked for first. Then Farandole looks in `farandole/` beside its library, then in
  /// the loader's path.
  std::string plugin_directory;

  /// Least severe level of messages on standard error: "debug", "info", "warning", "error" or "off".
  std::string log_level = "warning";

  /// Highest instruction set of the reduction kernels: "baseline", "avx2", "avx512"; "auto": the processor's best.
  /// Results do not depend on it.
  std::string isa = "auto";
};

/// All settings of a process, grouped by the layer that reads them. A World reads them from the environment once, when
/// it is made; `World::settings()` returns them:
///
///   if (world.settings().faults.timeout == Seconds(0)) …
struct Settings {
  CollectiveSettings collectives;
  SharedMemorySettings shared_memory;
  GradientSettings gradients;
  EngineSettings engine;
  FaultSettings faults;
  LaunchSettings launch;
  NetworkSettings network;
  DeviceSettings devices;
  ProcessSettings process;

  /// Reads the FARANDOLE_* variables of the environment.
  /// @throws InvalidArgument  a value is malformed or out of range, or there is no setting for a FARANDOLE_* variable;
  /// the message names the nearest setting
  static Settings from_environment();
  /// Reads a list of "NAME=value" texts instead of the environment.
  static Settings parse(std::span<const std::string> variables);
};

/// Accessors of one field of Settings. Made by `field<…>()` in farandole/internal/setting_rows.h.
template <class T>
struct SettingField {
  const T& (*get)(const Settings&);
  T& (*get_mutable)(Settings&);

  bool operator==(const SettingField&) const = default;
};

/// A row of the table of settings: an environment variable, and the field that it sets.
struct SettingInfo {
  using Field =
      std::variant<SettingField<std::string>, SettingField<std::int64_t>, SettingField<bool>, SettingField<Seconds>>;

  std::string_view variable;              ///< name of the environment variable: FARANDOLE_…
  Field field;                            ///< field that holds the value
  std::string_view unit;                  ///< "bytes", "seconds", or empty
  double minimum = 0, maximum = 0;        ///< range of numbers
  std::vector<std::string_view> choices;  ///< valid values of a text; empty: any text is valid
  bool agreed = false;                    ///< rank 0's value holds for all ranks
  std::string_view meaning;               ///< description for users
  bool secret = false;                    ///< messages do not show the value
};

/// Every setting, in the order of the documentation.
std::span<const SettingInfo> settings_table();

/// Value of a setting as text, in the form that the variable accepts; "(secret)" for a secret that is set.
std::string value_text(const Settings& settings, const SettingInfo& info);

/// Values that the variable accepts: "one of auto, ring", "bytes from 64 to 1GiB".
std::string expected_text(const SettingInfo& info);

/// Full text of docs/configuration.md.
std::string settings_markdown();

/// Encodes the agreed settings as a text, which rank 0 sends to its peers.
std::string encode_agreed(const Settings& settings);
/// Overwrites the agreed settings with rank 0's values, and returns a description of each setting that differed.
/// @throws Mismatch  `encoded` lacks a setting: rank 0 runs another version
std::vector<std::string> adopt_agreed(Settings& settings, std::string_view encoded);

/// Returns the candidate closest to `word` by edit distance; nothing if no candidate is close enough.
std::optional<std::string_view> nearest(std::string_view word, std::span<const std::string_view> candidates);

/// Parses a number of bytes: "64K", "4MiB", "1000". @throws InvalidArgument  the text is malformed
std::int64_t parse_bytes(std::string_view text);

}  // namespace FARANDOLE_API
