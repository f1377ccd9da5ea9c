// SPDX-License-Identifier: Apache-2.0
// What a GPU's memory, kernels and NCCL take, as JSON; tests/gpu_report.py runs it and compares with the targets.
//   usage: farandole_gpu_figures BYTES SAMPLES RANKS
// BYTES of the vectors that are copied and reduced; RANKS are threads, with a device each, unless the program was
// started as one of the processes of a job. Times are medians.
#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "cuda/nccl_api.h"
#include "farandole/collectives/communicator.h"
#include "farandole/core/world.h"
#include "farandole/sdk/device.h"

namespace farandole {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.at(values.size() / 2);
}

Device& device_of(Communicator& ranks) {
  return device_runtime(ranks.settings()).runtime->open(ranks.device().ordinal);
}

/// Something that is enqueued, and what the device takes for it.
struct Subject {
  std::string name;
  std::size_t moved_bytes;  ///< read and written
  std::function<void()> enqueue;
  std::vector<double> samples{};  ///< microseconds
};

/// All subjects in turn, so that whatever else the machine does meets them alike. A sample is the mean of as many as
/// take some milliseconds, because the host sees only the end of what is in a stream.
nlohmann::json measure(std::vector<Subject>& subjects, Device& device, StreamView stream, int samples) {
  constexpr double kSampleMicroseconds = 4000;
  const auto time = [&](const Subject& subject, int times) {
    const auto start = Clock::now();
    for (int i = 0; i < times; ++i) subject.enqueue();
    device.synchronize(stream);
    return microseconds_since(start) / times;
  };
  for (int sample = -1; sample < samples; ++sample) {
    for (Subject& subject : subjects) {
      const double once = time(subject, 1);
      if (sample < 0) continue;
      subject.samples.push_back(time(subject, static_cast<int>(std::clamp(kSampleMicroseconds / once, 1.0, 20.0))));
    }
  }
  nlohmann::json results = nlohmann::json::array();
  for (const Subject& subject : subjects) {
    results.push_back(
        {{"name", subject.name}, {"moved_bytes", subject.moved_bytes}, {"p50_us", median(subject.samples)}});
  }
  return results;
}

/// Elements of the trainable tensors of ResNet-50: He et al., CVPR 2016, table 1, with batch normalisation.
std::vector<std::size_t> resnet50_gradients() {
  std::vector<std::size_t> counts{std::size_t{3} * 64 * 49, 64, 64};
  std::size_t channels = 64;
  constexpr std::array kStages{std::array<std::size_t, 2>{64, 3}, std::array<std::size_t, 2>{128, 4},
                               std::array<std::size_t, 2>{256, 6}, std::array<std::size_t, 2>{512, 3}};
  for (const auto [planes, blocks] : kStages) {
    for (std::size_t block = 0; block < blocks; ++block) {
      const auto add = [&](std::size_t weights, std::size_t outputs) {
        counts.insert(counts.end(), {weights, outputs, outputs});
      };
      add(channels * planes, planes);
      add(planes * planes * 9, planes);
      add(planes * planes * 4, planes * 4);
      if (block == 0) add(channels * planes * 4, planes * 4);
      channels = planes * 4;
    }
  }
  counts.insert(counts.end(), {std::size_t{2048} * 1000, 1000});
  return counts;
}

/// Copies between many tensors and one vector, and back.
class Packing {
 public:
  explicit Packing(Communicator& ranks) {
    const std::vector<std::size_t> counts = resnet50_gradients();
    std::size_t total = 0;
    for (const std::size_t count : counts) total += count;
    if (counts.size() != 161 || total != 25'557'032) throw std::logic_error("these are not ResNet-50's tensors");
    packed_ = ranks.allocate(total, DType::kF32, ranks.device());
    std::size_t first = 0;
    for (const std::size_t count : counts) {
      parts_.push_back(ranks.allocate(count, DType::kF32, ranks.device()));
      void *const part = parts_.back().view().data, *const place = packed_.view().part(first, count).data;
      pack_.push_back(copy_of(place, part, count));
      unpack_.push_back(copy_of(part, place, count));
      first += count;
    }
  }
  std::size_t moved_bytes() const { return 2 * packed_.view().size_in_bytes(); }
  std::span<const DeviceTask> pack() const { return pack_; }
  std::span<const DeviceTask> unpack() const { return unpack_; }

 private:
  static DeviceTask copy_of(void* output, const void* input, std::size_t count) {
    DeviceTask task;
    task.dtype = task.output_dtype = DType::kF32;
    task.output = output;
    task.left = input;
    task.count = count;
    return task;
  }
  Buffer packed_;
  std::vector<Buffer> parts_;
  std::vector<DeviceTask> pack_, unpack_;
};

/// Copies, reductions and packing on this rank's device.
nlohmann::json measure_memory(Communicator& ranks, std::size_t bytes, int samples) {
  Device& device = device_of(ranks);
  const StreamView stream = device.make_stream();
  const Packing packing(ranks);
  std::vector<Buffer> vectors;
  for (int i = 0; i < 3; ++i) vectors.push_back(ranks.allocate(bytes, DType::kU8, ranks.device()));
  void *const output = vectors[0].view().data, *const left = vectors[1].view().data,
              *const right = vectors[2].view().data;
  std::vector<Subject> subjects;
  subjects.push_back({"copy", 2 * bytes, [&, output, left] { device.copy(output, left, bytes, stream); }});
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    DeviceTask task;
    task.kind = DeviceTask::Kind::kReduce;
    task.dtype = task.output_dtype = dtype;
    task.output = output;
    task.left = left;
    task.right = right;
    task.count = bytes / size_in_bytes(dtype);
    subjects.push_back({fmt::format("reduce_{}", name(dtype)), 3 * bytes,
                        [&device, stream, task] { device.launch(std::span(&task, 1), stream); }});
  }
  subjects.push_back({"pack", packing.moved_bytes(), [&] { device.launch(packing.pack(), stream); }});
  subjects.push_back({"unpack", packing.moved_bytes(), [&] { device.launch(packing.unpack(), stream); }});
  return measure(subjects, device, stream, samples);
}

/// Median time of the host for a call that enqueues. The stream is never long.
double host_microseconds(Device& device, StreamView stream, int samples, const std::function<void()>& enqueue) {
  constexpr int kInStream = 16;
  std::vector<double> times;
  for (int i = 0; i < samples * kInStream; ++i) {
    if (i % kInStream == 0) device.synchronize(stream);
    const auto start = Clock::now();
    enqueue();
    times.push_back(microseconds_since(start));
  }
  device.synchronize(stream);
  return median(times);
}

/// NCCL's own functions, for what Farandole never makes: a communicator of one rank, which sends to itself.
class NcclAlone {
 public:
  explicit NcclAlone(const Settings& settings) {
    const std::string file = settings.nccl_library.empty() ? "libnccl.so.2" : settings.nccl_library;
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
#define FARANDOLE_FIND(name, parameters) find(library, #name, api_.name);
    FARANDOLE_NCCL_FUNCTIONS(FARANDOLE_FIND)
#undef FARANDOLE_FIND
    cuda::ncclUniqueId id;
    cuda::ncclConfig_v21400 config;
    check(api_.ncclGetUniqueId(&id));
    check(api_.ncclCommInitRankConfig(&communicator_, 1, id, 0, &config));
  }
  ~NcclAlone() {
    api_.ncclCommDestroy(communicator_);
  }
  NcclAlone(const NcclAlone&) = delete;
  NcclAlone& operator=(const NcclAlone&) = delete;
  void exchange(void* output, const void* input, std::size_t bytes, StreamView stream) {
    auto* const handle = static_cast<cuda::CUstream>(stream.handle);
    check(api_.ncclGroupStart());
    check(api_.ncclSend(input, bytes, cuda::ncclUint8, 0, communicator_, handle));
    check(api_.ncclRecv(output, bytes, cuda::ncclUint8, 0, communicator_, handle));
    check(api_.ncclGroupEnd());
  }

 private:
  template <class Function>
  static void find(void* library, const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    if (function == nullptr) throw std::runtime_error(fmt::format("NCCL has no {}", name));
  }
  static void check(cuda::ncclResult_t result) {
    if (result != cuda::ncclSuccess) throw std::runtime_error(fmt::format("a call of NCCL returned {}", result));
  }
  cuda::NcclApi api_;
  cuda::ncclComm_t communicator_ = nullptr;
};

double measure_nccl_group(Communicator& ranks, int samples) {
  Device& device = device_of(ranks);
  device.bind_thread();
  const StreamView stream = device.make_stream();
  Buffer input = ranks.allocate(1024, DType::kU8, ranks.device());
  Buffer output = ranks.allocate(1024, DType::kU8, ranks.device());
  NcclAlone nccl(ranks.settings());
  return host_microseconds(device, stream, samples,
                           [&] { nccl.exchange(output.view().data, input.view().data, 1024, stream); });
}

/// Of an allreduce that returns when it is enqueued. Collective over `ranks`.
double measure_collective(Communicator& ranks, int samples) {
  Device& device = device_of(ranks);
  ReduceOptions options;
  options.stream = device.make_stream();
  Buffer values = ranks.allocate(256, DType::kF32, ranks.device());
  ranks.allreduce(values.view(), ReduceOp::kSum, options);
  return host_microseconds(device, options.stream, samples,
                           [&] { ranks.allreduce(values.view(), ReduceOp::kSum, options); });
}

/// Seconds from nothing to the end of the first allreduce. Collective over `ranks`, of which there are several.
double bring_up_nccl(Communicator& ranks) {
  Device& device = device_of(ranks);
  const StreamView stream(nullptr, device.space());
  Buffer values = ranks.allocate(256, DType::kF32, ranks.device());
  ranks.barrier();
  const auto start = Clock::now();
  std::vector<std::uint8_t> bytes(std::tuple_size_v<DeviceGroupId>);
  if (ranks.rank() == 0) {
    const DeviceGroupId made = device.make_group_id();
    std::memcpy(bytes.data(), made.data(), made.size());
  }
  ranks.broadcast(bytes, 0);
  DeviceGroupId id{};
  std::memcpy(id.data(), bytes.data(), id.size());
  const auto group = device.join_group(id, ranks.rank(), ranks.size());
  DeviceCollective allreduce;
  allreduce.input = allreduce.output = values.view().data;
  allreduce.count = values.count();
  allreduce.dtype = DType::kF32;
  group->run(allreduce, stream);
  device.synchronize(stream);
  return microseconds_since(start) * 1e-6;
}
double bring_up_farandole(Communicator& ranks) {
  Buffer values = ranks.allocate(256, DType::kF32, ranks.device());
  ranks.barrier();
  const auto start = Clock::now();
  Communicator fresh = ranks.duplicate();
  ReduceOptions options;
  options.algorithm = "vendor";
  fresh.allreduce(values.view(), ReduceOp::kSum, options);
  return microseconds_since(start) * 1e-6;
}

nlohmann::json measure_bring_up(Communicator& ranks, int samples) {
  std::vector<double> ours, theirs;
  for (int sample = -1; sample < samples; ++sample) {
    const double nccl = bring_up_nccl(ranks), farandole = bring_up_farandole(ranks);
    if (sample < 0) continue;
    theirs.push_back(nccl);
    ours.push_back(farandole);
  }
  return {{"ranks", ranks.size()}, {"farandole_s", median(ours)}, {"nccl_s", median(theirs)}};
}

/// Rank 0 prints. Collective over `ranks`.
void measure_all(Communicator& ranks, std::size_t bytes, int samples) {
  nlohmann::json figures = {{"bytes", bytes}, {"ranks", ranks.size()}};
  if (ranks.rank() == 0) {
    figures["memory"] = measure_memory(ranks, bytes, samples);
    figures["nccl_group_us"] = measure_nccl_group(ranks, samples);
  }
  ranks.barrier();
  figures["collective_us"] = measure_collective(ranks, samples);
  if (ranks.size() > 1) figures["bring_up"] = measure_bring_up(ranks, std::min(samples, 5));
  if (ranks.rank() == 0) fmt::print("{}\n", figures.dump(1));
}

int run(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: farandole_gpu_figures BYTES SAMPLES RANKS\n");
    return 2;
  }
  const std::size_t bytes = std::strtoull(argv[1], nullptr, 10);
  const int samples = std::atoi(argv[2]);
  WorldOptions options;
  options.replicas = std::getenv("FARANDOLE_SIZE") == nullptr ? std::atoi(argv[3]) : 1;
  World world(options);
  run_replicas(world, [&](Communicator& ranks) { measure_all(ranks, bytes, samples); });
  return 0;
}

}  // namespace
}  // namespace farandole

int main(int argc, char** argv) {
  try {
    return farandole::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "farandole_gpu_figures: {}\n", error.what());
    return 1;
  }
}
