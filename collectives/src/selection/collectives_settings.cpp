// SPDX-License-Identifier: Apache-2.0
#include "selection/collectives_settings.h"

#include "farandole/collectives/algorithms.h"

namespace farandole {
namespace {

SettingInfo algorithm_of(Collective collective, std::string_view variable, SettingField<std::string> field,
                         std::string_view meaning) {
  std::vector<std::string_view> choices = algorithm_names(collective);
  choices.insert(choices.begin(), "auto");
  return setting::choice(variable, field, std::move(choices), Scope::kAllRanks, meaning);
}

}  // namespace

SettingRows collectives_settings() {  // NOLINT(readability-function-size): a table
  using namespace setting;
  constexpr Scope kAll = Scope::kAllRanks;
  return {
      algorithm_of(Collective::kAllreduce, "FARANDOLE_ALLREDUCE",
                   field<&Settings::collectives, &CollectiveSettings::allreduce>(),
                   "Algorithm of allreduce; docs/algorithms.md describes the names. `auto`: the algorithm in "
                   "the table of FARANDOLE_TUNING, else shared memory, else the algorithm with the lowest cost in the "
                   "cost model."),
      algorithm_of(Collective::kBroadcast, "FARANDOLE_BROADCAST",
                   field<&Settings::collectives, &CollectiveSettings::broadcast>(), "Algorithm of broadcast."),
      algorithm_of(Collective::kReduce, "FARANDOLE_REDUCE",
                   field<&Settings::collectives, &CollectiveSettings::reduce>(), "Algorithm of reduce."),
      algorithm_of(Collective::kAllgather, "FARANDOLE_ALLGATHER",
                   field<&Settings::collectives, &CollectiveSettings::allgather>(), "Algorithm of allgather."),
      algorithm_of(Collective::kReduceScatter, "FARANDOLE_REDUCE_SCATTER",
                   field<&Settings::collectives, &CollectiveSettings::reduce_scatter>(),
                   "Algorithm of reduce_scatter."),
      algorithm_of(Collective::kGather, "FARANDOLE_GATHER",
                   field<&Settings::collectives, &CollectiveSettings::gather>(), "Algorithm of gather."),
      algorithm_of(Collective::kScatter, "FARANDOLE_SCATTER",
                   field<&Settings::collectives, &CollectiveSettings::scatter>(), "Algorithm of scatter."),
      bytes("FARANDOLE_SEGMENT_BYTES", field<&Settings::collectives, &CollectiveSettings::segment_bytes>(), 64, kGiB,
            kAll,
            "Pipelined algorithms cut the data that a rank sends into segments of about this size. Smaller "
            "segments overlap better; larger segments need fewer messages."),
      choice("FARANDOLE_F16_AVERAGE", field<&Settings::collectives, &CollectiveSettings::f16_average>(),
             {"divide_first", "divide_last"}, kAll,
             "When an average of f16 divides, if f16 sums travel between ranks (by messages, on devices). "
             "`divide_first`: each rank divides its contribution, so no sum overflows. `divide_last`: the sum is "
             "divided, so small numbers keep their digits."),
      choice(
          "FARANDOLE_CHECK", field<&Settings::collectives, &CollectiveSettings::check>(), {"on", "strict", "off"}, kAll,
          "`on`: ranks compare their calls before data is touched, and ranks that call different collectives raise "
          "Mismatch; calls in the caller's device order are compared afterwards. `strict`: these are compared before "
          "data is touched, too. `off`: ranks that call different collectives hang or get wrong data."),
      choice("FARANDOLE_SHARED_MEMORY", field<&Settings::shared_memory, &SharedMemorySettings::mode>(),
             {"on", "windows", "off"}, kAll,
             "`on`: ranks of a host use shared memory, and threads of one process also access each other's "
             "ordinary buffers. `windows`: threads access only each other's windows (memory of "
             "`Communicator::allocate`), as processes do. `off`: ranks exchange messages."),
      bytes("FARANDOLE_ONE_SHOT_BYTES", field<&Settings::shared_memory, &SharedMemorySettings::one_shot_bytes>(), 0,
            kGiB, kAll,
            "In shared memory, vectors up to this size are one-shot: each rank reads its peers' contributions "
            "after a single synchronization. The limit is 4 times as high on hosts with more ranks than cores."),
      bytes("FARANDOLE_SLICE_BYTES", field<&Settings::shared_memory, &SharedMemorySettings::slice_bytes>(), 4 * kKiB,
            64 * kKiB * kKiB, kAll,
            "In shared memory, longer vectors are processed in slices of this size. Slices should fit into the "
            "caches."),
      bytes("FARANDOLE_SINGLE_COPY_BYTES", field<&Settings::shared_memory, &SharedMemorySettings::single_copy_bytes>(),
            0, 64 * kGiB, kAll,
            "In collectives that only move data (no reduction), chunks of at least this size in ordinary memory "
            "are copied once, directly from process to process (`process_vm_readv`), if the kernel permits. 0: "
            "never."),
      bytes("FARANDOLE_NON_TEMPORAL_BYTES",
            field<&Settings::shared_memory, &SharedMemorySettings::non_temporal_bytes>(), 0, 64 * kGiB, kAll,
            "Results larger than this, summed over the ranks of a host, are written by non-temporal stores, "
            "unless they replace the input. So are results of at least 1/16 of this size if more than this many "
            "bytes of results have been written since the last result in the same output buffer."),
      bytes("FARANDOLE_DEVICE_SLICE_BYTES", field<&Settings::devices, &DeviceSettings::slice_bytes>(), 256, kGiB, kAll,
            "Slice size with which hierarchical collectives on device memory copy data for other hosts through "
            "pinned memory; a few slices are in flight at a time."),
      text("FARANDOLE_TUNING", field<&Settings::collectives, &CollectiveSettings::tuning>(), kAll,
           "File of measured algorithms and sizes, written by `farandole-bench --tune`. Rank 0 reads the file. "
           "Algorithm and size settings that you change from their defaults override the file."),
  };
}

}  // namespace farandole
