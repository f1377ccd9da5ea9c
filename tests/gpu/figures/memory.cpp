// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "figures.h"
#include "resnet50.h"

namespace farandole::figures {
namespace {

/// Work to enqueue, and the device memory that the work takes.
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

/// Copies between many tensors and one vector, and back.
class Packing {
 public:
  explicit Packing(Communicator& ranks) {
    const std::vector<std::size_t> counts = test::resnet50_gradients();
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
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
  std::size_t bytes() const { return packed_.view().size_in_bytes(); }
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

/// Random values, which power management and caches treat as they treat gradients; zeros would not be.
void fill_random(Device& device, BufferView bytes, StreamView stream) {
  constexpr std::size_t kPattern = std::size_t{1} << 20;
  std::mt19937 draw(1);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> pattern(kPattern);
  for (float& value : pattern) value = values(draw);
  auto* const memory = static_cast<std::byte*>(bytes.data);
  for (std::size_t done = 0; done < bytes.count; done += kPattern * sizeof(float)) {
    device.copy(memory + done, pattern.data(), std::min(kPattern * sizeof(float), bytes.count - done), stream);
  }
  device.synchronize(stream);
}

}  // namespace

nlohmann::json measure_memory(Communicator& ranks, std::size_t bytes, int samples) {
  Device& device = device_of(ranks);
  const StreamView stream = device.make_stream();
  const Packing packing(ranks);
  std::vector<Buffer> vectors;
  for (int i = 0; i < 3; ++i) {
    vectors.push_back(ranks.allocate(std::max(bytes, packing.bytes()), DType::kU8, ranks.device()));
    fill_random(device, vectors.back().view(), stream);
  }
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
  subjects.push_back({"copy of the gradients' size", 2 * packing.bytes(),
                      [&, output, left] { device.copy(output, left, packing.bytes(), stream); }});
  subjects.push_back({"pack", 2 * packing.bytes(), [&] { device.launch(packing.pack(), stream); }});
  subjects.push_back({"unpack", 2 * packing.bytes(), [&] { device.launch(packing.unpack(), stream); }});
  return {{"bytes", bytes}, {"memory", measure(subjects, device, stream, samples)}};
}

}  // namespace farandole::figures
