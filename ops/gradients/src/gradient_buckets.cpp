// SPDX-License-Identifier: Apache-2.0
#include "gradient_buckets.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "farandole/internal/float16.h"

namespace farandole {
namespace {

bool follows(const BufferView& before, const BufferView& after) {
  return static_cast<const std::byte*>(before.data) + before.size_in_bytes() == after.data;
}

/// Cuts `spans` into buckets from the last entry to the first, in the order of reduction. A bucket holds gradients of
/// the same type and at most `bucket_bytes`, the bucket that is reduced last at most `last_bucket_bytes`; a larger span
/// is a separate bucket.
std::vector<Bucket> cut(const std::vector<BufferView>& spans, std::size_t bucket_bytes, std::size_t last_bucket_bytes) {
  std::size_t tail = 0;  // spans [0, tail) form the bucket that is reduced last
  for (std::size_t bytes = 0; tail < spans.size(); ++tail) {
    bytes += spans[tail].size_in_bytes();
    if (tail > 0 && (bytes > last_bucket_bytes || spans[tail].dtype != spans[0].dtype)) break;
  }
  std::vector<Bucket> buckets;
  std::size_t bytes = 0;
  for (std::size_t i = spans.size(); i-- > 0;) {
    const std::size_t next = spans[i].size_in_bytes();
    const bool opens =
        buckets.empty() || i + 1 == tail || bytes + next > bucket_bytes || spans[i].dtype != spans[i + 1].dtype;
    if (opens) {
      buckets.emplace_back();
      bytes = 0;
    }
    bytes += next;
    buckets.back().first = i;
    ++buckets.back().count;
  }
  return buckets;
}

/// Decides whether `bucket` is reduced in place or packed, and in which type; allocates the packed memory.
void prepare(Bucket& bucket, const std::vector<BufferView>& reduced, Communicator& communicator,
             const GradientOptions& options) {
  const BufferView& front = reduced[bucket.first];
  const bool converts = options.communicate_as && front.dtype == DType::kF32;
  bucket.in_place = !converts;
  std::size_t elements = 0;
  for (std::size_t i = bucket.first; i < bucket.first + bucket.count; ++i) {
    elements += reduced[i].count;
    if (i > bucket.first) bucket.in_place = bucket.in_place && follows(reduced[i - 1], reduced[i]);
  }
  if (bucket.in_place) {
    bucket.view = BufferView(front.data, elements, front.dtype, front.space);
  } else {
    bucket.packed = communicator.allocate(elements, converts ? *options.communicate_as : front.dtype, front.space);
    bucket.view = bucket.packed.view();
  }
}

/// Copies host memory; converts between f32 and f16 or bf16 if the types differ.
void copy_elements(const BufferView& to, const BufferView& from) {
  if (to.count == 0) return;
  if (to.dtype == from.dtype) {
    std::memcpy(to.data, from.data, to.size_in_bytes());
  } else if (to.dtype == DType::kF16) {
    narrow_all(static_cast<Half*>(to.data), static_cast<const float*>(from.data), to.count);
  } else if (to.dtype == DType::kBF16) {
    std::transform(static_cast<const float*>(from.data), static_cast<const float*>(from.data) + to.count,
                   static_cast<BFloat16*>(to.data), [](float value) { return narrow_to_bfloat16(value); });
  } else if (from.dtype == DType::kF16) {
    widen_all(static_cast<float*>(to.data), static_cast<const Half*>(from.data), to.count);
  } else {
    std::transform(static_cast<const BFloat16*>(from.data), static_cast<const BFloat16*>(from.data) + to.count,
                   static_cast<float*>(to.data), [](BFloat16 value) { return widen(value); });
  }
}

}  // namespace

GradientBuckets::GradientBuckets(Communicator& communicator, const std::vector<GradientSpan>& gradients,
                                 std::vector<std::size_t> tied_spans, const GradientOptions& options)
    : tied(std::move(tied_spans)) {
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (tied[i] == i) reduced.push_back(gradients[i].values);
  }
  buckets = cut(reduced, options.bucket_bytes, options.last_bucket_bytes);
  std::vector<std::size_t> bucket_of_reduced(reduced.size());
  for (std::size_t index = 0; index < buckets.size(); ++index) {
    Bucket& bucket = buckets[index];
    prepare(bucket, reduced, communicator, options);
    std::fill_n(bucket_of_reduced.begin() + static_cast<std::ptrdiff_t>(bucket.first), bucket.count, index);
  }
  std::size_t next = 0;  // in `reduced`
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    bucket_of.push_back(tied[i] == i ? bucket_of_reduced[next++] : bucket_of[tied[i]]);
    ++buckets[bucket_of[i]].gradients;
  }
}

void GradientBuckets::copy(const Bucket& bucket, Device* device, StreamView stream, bool packs) const {
  if (bucket.in_place) return;
  std::vector<DeviceTask> tasks;
  std::size_t first = 0;
  for (std::size_t i = bucket.first; i < bucket.first + bucket.count; ++i) {
    const BufferView& values = reduced[i];
    const BufferView packed = bucket.view.part(first, values.count);
    first += values.count;
    const BufferView& to = packs ? packed : values;
    const BufferView& from = packs ? values : packed;
    if (device != nullptr) {
      const auto kind = to.dtype == from.dtype ? DeviceTask::Kind::kCopy : DeviceTask::Kind::kCast;
      tasks.push_back({kind, from.dtype, to.dtype, ReduceOp::kSum, to.data, from.data, nullptr, to.count, 1.0});
    } else {
      copy_elements(to, from);
    }
  }
  if (device != nullptr) device->launch(tasks, stream);
}

}  // namespace farandole
