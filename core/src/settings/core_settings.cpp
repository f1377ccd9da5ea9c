// SPDX-License-Identifier: Apache-2.0
// Rows of the settings of core.
#include "farandole/internal/setting_rows.h"

namespace farandole {

SettingRows core_settings() {  // NOLINT(readability-function-size): a table
  using namespace setting;
  constexpr Scope kAll = Scope::kAllRanks;
  constexpr Scope kOwn = Scope::kOwn;
  constexpr double kMaxRanks = 1 << 20;
  return {
      seconds("FARANDOLE_TIMEOUT", field<&Settings::faults, &FaultSettings::timeout>(), 0, kWeek, kAll,
              "A collective that takes longer raises Timeout on every rank; 0 means never."),
      seconds(
          "FARANDOLE_WARN_AFTER", field<&Settings::faults, &FaultSettings::warn_after>(), 0.01, kWeek, kAll,
          "A collective that waits longer logs which ranks are missing, again after twice the time, and so on. Ranks "
          "that have all stood still for a sixth of it, waiting for each other, raise Mismatch."),
      choice(
          "FARANDOLE_LIVENESS", field<&Settings::faults, &FaultSettings::liveness>(), {"auto", "pidfd", "proc", "off"},
          kOwn,
          "How processes of one host see each other die: by a pidfd of each, or by reading /proc/<pid>/stat 20 times "
          "a second; `auto`: by pidfd, else by /proc; `proc` also where a sandbox kills programs that call "
          "pidfd_open; `off`: not at all."),
      text("FARANDOLE_FLIGHT_DIR", field<&Settings::faults, &FaultSettings::flight_directory>(), kOwn,
           "Directory in which each rank writes its last 1024 collectives when the job fails; `off` writes nothing."),
      bytes("FARANDOLE_WINDOW_BYTES", field<&Settings::shared_memory, &SharedMemorySettings::window_bytes>(), 0,
            kGiB * kGiB, kOwn,
            "Most memory that the windows of a host's ranks take together; 0: what the machine, or the control group, "
            "has."),
      choice(
          "FARANDOLE_MPI", field<&Settings::launch, &LaunchSettings::mpi>(),
          {"auto", "openmpi", "mpich", "pmix", "off"}, kOwn,
          "MPI to join by; `auto` takes the one that is loaded or that started the program, `pmix` none: the "
          "launcher's "
          "PMIx (`srun --mpi=pmix`, or mpirun of Open MPI) tells the processes their numbers; `off` none: jobs without "
          "MPI are joined all the same."),
      choice("FARANDOLE_NETWORK", field<&Settings::network, &NetworkSettings::transport>(), {"auto", "mpi", "tcp"},
             kAll,
             "What carries messages between the hosts of a job that MPI has started: MPI, or TCP connections of "
             "Farandole's own; `auto`: those, where all processes can listen and reach the next host and there is no "
             "faster fabric, which MPI would use."),
      text(
          "FARANDOLE_NETWORK_INTERFACE", field<&Settings::network, &NetworkSettings::interface>(), kOwn,
          "Interface of this host that TCP connections use, by name or network, such as `eth1` or `10.0.0.0/8`; empty: "
          "by the route."),
      seconds("FARANDOLE_PEER_TIMEOUT", field<&Settings::network, &NetworkSettings::peer_timeout>(), 3, kWeek, kAll,
              "A host that answers nothing on its TCP connections for so long raises PeerLost; one that only is late "
              "does not."),
      text("FARANDOLE_PLUGIN_DIR", field<&Settings::process, &ProcessSettings::plugin_directory>(), kOwn,
           "Directory of the plug-ins; empty means beside the library."),
      text("FARANDOLE_HOST_ID", field<&Settings::launch, &LaunchSettings::host_id>(), kOwn,
           "Processes with different texts count as being on different hosts, to try multi-host jobs on one machine."),
      number(
          "FARANDOLE_RANK", field<&Settings::launch, &LaunchSettings::rank>(), -1, kMaxRanks - 1, kOwn,
          "Number of this process in a job that no MPI starts, with FARANDOLE_SIZE and either FARANDOLE_RENDEZVOUS or, "
          "on one host, FARANDOLE_JOB; -1 means not set."),
      number("FARANDOLE_SIZE", field<&Settings::launch, &LaunchSettings::size>(), -1, kMaxRanks, kOwn,
             "Number of processes in a job that no MPI starts; -1 means not set."),
      text("FARANDOLE_JOB", field<&Settings::launch, &LaunchSettings::job>(), kOwn,
           "Name of a job that no MPI starts: the same for all its processes, and no other job of the same user, or at "
           "the same address, at the time."),
      text("FARANDOLE_RENDEZVOUS", field<&Settings::launch, &LaunchSettings::rendezvous>(), kOwn,
           "Host and port at which the processes of a job over several hosts meet, such as `node1:29500`: the host of "
           "rank 0, and a port of which one of the next 8 is free, too."),
      text("FARANDOLE_JOB_KEY_FILE", field<&Settings::network, &NetworkSettings::job_key_file>(), kOwn,
           "File with the key of a job that no MPI starts, 64 hexadecimal digits: of this user, with mode 0600, no "
           "link."),
      number("FARANDOLE_JOB_KEY_FD", field<&Settings::network, &NetworkSettings::job_key_descriptor>(), -1, 1 << 20,
             kOwn,
             "Open descriptor from which the key of such a job is read, and which is closed then; -1 means not set."),
      secret("FARANDOLE_JOB_KEY", field<&Settings::network, &NetworkSettings::job_key>(),
             "The key of such a job itself; the variable is removed when it has been read, and no message shows the "
             "value."),
      flag("FARANDOLE_TRUST_NETWORK", field<&Settings::network, &NetworkSettings::trust_network>(), kOwn,
           "Whether such a job may do without a key: every program that reaches a port of the job can then join it, "
           "read its data and send it wrong ones."),
      text("FARANDOLE_PMIX_LIBRARY", field<&Settings::launch, &LaunchSettings::pmix_library>(), kOwn,
           "File of PMIx; empty means the one that the process has loaded, else the libpmix.so.2 that the loader, or a "
           "look into the directories of Debian and Open MPI, finds."),
      choice("FARANDOLE_CUDA", field<&Settings::devices, &DeviceSettings::cuda>(), {"auto", "off"}, kOwn,
             "Whether CUDA's devices are used; `auto`: where the plug-in, a driver and a device are there; `off` loads "
             "nothing of CUDA."),
      text("FARANDOLE_DEVICE", field<&Settings::devices, &DeviceSettings::ordinals>(), kOwn,
           "Number of the device of this process's rank, or a list such as `0,2,1`, one for each local rank; `auto`: "
           "the only one that the process sees, else that of the local rank."),
      text("FARANDOLE_CUDA_LIBRARY", field<&Settings::devices, &DeviceSettings::cuda_library>(), kOwn,
           "File of CUDA's driver library; empty means the libcuda.so.1 that the loader finds."),
      text("FARANDOLE_NCCL_LIBRARY", field<&Settings::devices, &DeviceSettings::nccl_library>(), kOwn,
           "File of NCCL; empty means the one that the process has loaded, else the libnccl.so.2 that the loader "
           "finds."),
      choice("FARANDOLE_LOG", field<&Settings::process, &ProcessSettings::log_level>(),
             {"debug", "info", "warning", "error", "off"}, kOwn,
             "Least severe messages that are written to standard error."),
      choice("FARANDOLE_ISA", field<&Settings::process, &ProcessSettings::isa>(),
             {"auto", "baseline", "avx2", "avx512"}, kOwn,
             "Highest instruction set that the reduction kernels may use; results do not depend on it."),
  };
}

}  // namespace farandole
