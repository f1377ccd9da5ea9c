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
              "A collective that takes longer raises Timeout on every rank. 0: never."),
      seconds("FARANDOLE_WARN_AFTER", field<&Settings::faults, &FaultSettings::warn_after>(), 0.01, kWeek, kAll,
              "A rank that waits longer in a collective logs which ranks are missing, again after twice the time, "
              "and so on. In the engine of named tensors, ranks that all wait for each other and have been idle "
              "for a sixth of this time raise Mismatch. Ranks that wait for each other in a circle of several "
              "communicators raise Mismatch with the third warning."),
      choice("FARANDOLE_LIVENESS", field<&Settings::faults, &FaultSettings::liveness>(),
             {"auto", "pidfd", "proc", "off"}, kOwn,
             "How processes of a host detect that another process has died. `pidfd`: by a pidfd of each process. "
             "`proc`: reads `/proc/<pid>/stat` 20 times a second; choose it in a sandbox that kills programs that "
             "call pidfd_open. `auto`: by pidfd, else by /proc. `off`: no detection."),
      choice("FARANDOLE_DEVICE_FAULT", field<&Settings::faults, &FaultSettings::device_fault>(), {"exit", "raise"},
             kOwn,
             "What happens when a job fails while a device works for calls that were enqueued in the caller's device "
             "order. `exit`: the process reports the fault and ends a few seconds later, because its device may wait "
             "forever or compute with wrong data. `raise`: the device's collectives are aborted, and the next call "
             "raises the fault; what the program computes from their data is wrong."),
      text("FARANDOLE_FLIGHT_DIR", field<&Settings::faults, &FaultSettings::flight_directory>(), kOwn,
           "Directory to which each rank writes its last 1024 collectives when the job fails. `off`: no files."),
      bytes("FARANDOLE_WINDOW_BYTES", field<&Settings::shared_memory, &SharedMemorySettings::window_bytes>(), 0,
            kGiB * kGiB, kOwn,
            "Maximum total size of the windows (memory of `Communicator::allocate`) of all ranks of a host; "
            "further allocations raise InvalidArgument. 0: the memory of the machine or of the control group."),
      choice("FARANDOLE_MPI", field<&Settings::launch, &LaunchSettings::mpi>(),
             {"auto", "openmpi", "mpich", "pmix", "off"}, kOwn,
             "`auto`: the MPI that is loaded or that started the program. `openmpi`, `mpich`: this MPI. `pmix`: "
             "no MPI; the launcher's PMIx (`srun --mpi=pmix`, or mpirun of Open MPI) gives each process its "
             "number. `off`: no MPI; FARANDOLE_RANK or torchrun's variables still start a job."),
      choice("FARANDOLE_NETWORK", field<&Settings::network, &NetworkSettings::transport>(), {"auto", "mpi", "tcp"},
             kAll,
             "Transport between the hosts of a job that MPI has started. `mpi`: MPI. `tcp`: Farandole's own TCP "
             "connections. `auto`: TCP if every process can listen and can reach the next host, and no host has a "
             "fabric faster than TCP; else MPI."),
      text("FARANDOLE_NETWORK_INTERFACE", field<&Settings::network, &NetworkSettings::interface>(), kOwn,
           "Interface of this host for TCP connections, by name or network, such as `eth1` or `10.0.0.0/8`. "
           "Empty: the route decides."),
      seconds("FARANDOLE_PEER_TIMEOUT", field<&Settings::network, &NetworkSettings::peer_timeout>(), 3, kWeek, kAll,
              "Ranks raise PeerLost if for this long a host's kernel acknowledges nothing on its TCP connections, or "
              "no connection can be made. A slow program on that host is not a loss."),
      text("FARANDOLE_PLUGIN_DIR", field<&Settings::process, &ProcessSettings::plugin_directory>(), kOwn,
           "Directory in which plug-ins are looked for first; then Farandole looks in `farandole/` beside its "
           "library, then in the loader's path."),
      text("FARANDOLE_HOST_ID", field<&Settings::launch, &LaunchSettings::host_id>(), kOwn,
           "Processes with different texts count as being on different hosts. Use it to try multi-host jobs on "
           "one machine."),
      number("FARANDOLE_RANK", field<&Settings::launch, &LaunchSettings::rank>(), -1, kMaxRanks - 1, kOwn,
             "Number of this process in a job that no MPI starts. Such a job also needs FARANDOLE_SIZE, and "
             "FARANDOLE_RENDEZVOUS or, on one host, FARANDOLE_JOB. -1: not set."),
      number("FARANDOLE_SIZE", field<&Settings::launch, &LaunchSettings::size>(), -1, kMaxRanks, kOwn,
             "Number of processes in a job that no MPI starts. -1: not set."),
      text("FARANDOLE_JOB", field<&Settings::launch, &LaunchSettings::job>(), kOwn,
           "Name of a job that no MPI starts. All its processes have the same name; no other job of the same "
           "user, or at the same rendezvous, may use the name at the same time."),
      text("FARANDOLE_RENDEZVOUS", field<&Settings::launch, &LaunchSettings::rendezvous>(), kOwn,
           "Host of process 0 and a port, such as `node1:29500`, for a job over several hosts that no MPI "
           "starts. Process 0 listens at the first free port among this port and the next 8; the other "
           "processes connect to it."),
      text("FARANDOLE_JOB_KEY_FILE", field<&Settings::network, &NetworkSettings::job_key_file>(), kOwn,
           "File with the key (64 hexadecimal digits) of a job that no MPI starts. The file must belong to this "
           "user, have mode 0600, and not be a symbolic link."),
      number("FARANDOLE_JOB_KEY_FD", field<&Settings::network, &NetworkSettings::job_key_descriptor>(), -1, 1 << 20,
             kOwn,
             "Open file descriptor from which a process reads the key of a job that no MPI starts; the process "
             "then closes the descriptor. -1: not set."),
      secret("FARANDOLE_JOB_KEY", field<&Settings::network, &NetworkSettings::job_key>(),
             "The key (64 hexadecimal digits) of a job that no MPI starts. Farandole removes the variable from "
             "the environment after reading it; no message shows the value."),
      flag("FARANDOLE_TRUST_NETWORK", field<&Settings::network, &NetworkSettings::trust_network>(), kOwn,
           "Allow a job that no MPI starts to run without a key. Any program that reaches one of its ports can "
           "then join, read its data, and send wrong data."),
      text("FARANDOLE_PMIX_LIBRARY", field<&Settings::launch, &LaunchSettings::pmix_library>(), kOwn,
           "File of the PMIx library. Empty: the PMIx that the process has loaded, else libpmix.so.2 from the "
           "loader's path, else from the usual directories of Debian and Open MPI."),
      choice("FARANDOLE_CUDA", field<&Settings::devices, &DeviceSettings::cuda>(), {"auto", "off"}, kOwn,
             "`auto`: CUDA devices are used if the plug-in, a driver and a device are present. `off`: nothing of "
             "CUDA is loaded."),
      text("FARANDOLE_DEVICE", field<&Settings::devices, &DeviceSettings::ordinals>(), kOwn,
           "Device number of this process's rank, or a list such as `0,2,1` with a number for each local rank. "
           "`auto`: the device that the process sees, if it sees only one; else the device whose number is the "
           "local rank. Without effect where the program sets `WorldOptions::devices`."),
      text("FARANDOLE_CUDA_LIBRARY", field<&Settings::devices, &DeviceSettings::cuda_library>(), kOwn,
           "File of CUDA's driver library. Empty: libcuda.so.1 from the loader's path."),
      text("FARANDOLE_NCCL_LIBRARY", field<&Settings::devices, &DeviceSettings::nccl_library>(), kOwn,
           "File of NCCL. Empty: the NCCL that the process has loaded, else libnccl.so.2 from the loader's path, else "
           "from `nvidia/*/lib` of the active Python environment (`VIRTUAL_ENV`, `CONDA_PREFIX`, or the `python3` in "
           "`PATH`)."),
      text("FARANDOLE_CUBLAS_LIBRARY", field<&Settings::devices, &DeviceSettings::cublas_library>(), kOwn,
           "File of cuBLAS, with which the trainer computes on devices. Empty: the cuBLAS that the process has "
           "loaded, else libcublas.so.13 or .12 from the loader's path, else from `nvidia/*/lib` of the active Python "
           "environment (`VIRTUAL_ENV`, `CONDA_PREFIX`, or the `python3` in `PATH`)."),
      text(
          "FARANDOLE_CUDNN_LIBRARY", field<&Settings::devices, &DeviceSettings::cudnn_library>(), kOwn,
          "File of cuDNN 9, with which the trainer computes convolutions on devices. Empty: the cuDNN that the process "
          "has loaded, else libcudnn.so.9 from the loader's path, else from `nvidia/*/lib` of the active Python "
          "environment; without one, cuBLAS computes convolutions. `off`: no cuDNN is loaded."),
      choice("FARANDOLE_LOG", field<&Settings::process, &ProcessSettings::log_level>(),
             {"debug", "info", "warning", "error", "off"}, kOwn,
             "Least severe level of messages that are written to standard error."),
      choice("FARANDOLE_ISA", field<&Settings::process, &ProcessSettings::isa>(),
             {"auto", "baseline", "avx2", "avx512"}, kOwn,
             "Highest instruction set that the reduction kernels may use. `auto`: the best of the processor. "
             "Results do not depend on it."),
  };
}

}  // namespace farandole
