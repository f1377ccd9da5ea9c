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

SettingRows collectives_settings() {
  using namespace setting;
  constexpr Scope kAll = Scope::kAllRanks;
  return {
      algorithm_of(Collective::kAllreduce, "FARANDOLE_ALLREDUCE",
                   field<&Settings::collectives, &CollectiveSettings::allreduce>(),
                   "Algorithm of allreduce; `auto`: by FARANDOLE_TUNING, else shared memory, else the cheapest by the "
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
            kAll, "Pipelined algorithms cut what a rank sends into segments of about this size."),
      choice("FARANDOLE_F16_AVERAGE", field<&Settings::collectives, &CollectiveSettings::f16_average>(),
             {"divide_first", "divide_last"}, kAll,
             "Where sums of f16 travel between ranks, as by messages and on devices, an average divides each "
             "contribution before it leaves its rank, so that no sum overflows, or the sum at the end, so that small "
             "numbers keep their digits."),
      flag("FARANDOLE_CHECK", field<&Settings::collectives, &CollectiveSettings::check>(), kAll,
           "Compare on all ranks what was called before data is touched, so that a disagreement is an error and no "
           "hang."),
      choice("FARANDOLE_SHARED_MEMORY", field<&Settings::shared_memory, &SharedMemorySettings::mode>(),
             {"on", "windows", "off"}, kAll,
             "Ranks of one host exchange data through memory that they share; `windows`: threads of one process reach "
             "only windows of each other, as processes do; `off`: ranks exchange messages."),
      bytes("FARANDOLE_ONE_SHOT_BYTES", field<&Settings::shared_memory, &SharedMemorySettings::one_shot_bytes>(), 0,
            kGiB, kAll,
            "In shared memory, vectors up to this size (4 times as much where a host has more ranks than cores) are "
            "one-shot: every rank reads what it needs of its peers."),
      bytes("FARANDOLE_SLICE_BYTES", field<&Settings::shared_memory, &SharedMemorySettings::slice_bytes>(), 4 * kKiB,
            64 * kKiB * kKiB, kAll, "In shared memory, larger vectors pass through the caches in slices of this size."),
      bytes("FARANDOLE_SINGLE_COPY_BYTES", field<&Settings::shared_memory, &SharedMemorySettings::single_copy_bytes>(),
            0, 64 * kGiB, kAll,
            "In shared memory, processes that only move data copy chunks of at least this size between their ordinary "
            "memory once, by cross-memory attach, where the kernel allows it; 0: never."),
      bytes("FARANDOLE_NON_TEMPORAL_BYTES",
            field<&Settings::shared_memory, &SharedMemorySettings::non_temporal_bytes>(), 0, 64 * kGiB, kAll,
            "In shared memory, results of more bytes, of all ranks of a host together, are written by non-temporal "
            "stores, unless they take the place of the input; so are large ones that were last written so many bytes "
            "ago."),
      bytes(
          "FARANDOLE_DEVICE_SLICE_BYTES", field<&Settings::devices, &DeviceSettings::slice_bytes>(), 256, kGiB, kAll,
          "Hierarchical collectives on device memory copy what a rank exchanges with other hosts through pinned memory "
          "in slices of this size; a few of them are on their way together."),
      text(
          "FARANDOLE_TUNING", field<&Settings::collectives, &CollectiveSettings::tuning>(), kAll,
          "File of measured choices, made by `farandole-bench --tune` and read by rank 0; a setting above that differs "
          "from its default goes before it."),
  };
}

}  // namespace farandole
