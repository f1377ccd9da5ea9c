// SPDX-License-Identifier: Apache-2.0
// The op that digests tensors: ranks compare digests instead of tensors.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "farandole/engine.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/tstring.h"

#include "call.h"

namespace farandole_tensorflow {
namespace {

using tensorflow::Tensor;

// A tensor of more than kMaxBytes is sampled, so that the digest takes about 0.1 ms. The sample is smaller than
// kMaxBytes, because memory outside the cache costs more per byte.
constexpr std::size_t kMaxBytes = 1 << 20;
constexpr std::size_t kSampledBytes = 256 << 10;
constexpr std::size_t kBlockBytes = 64;  // a cache line; reading a part of a line costs the same

/// A fast 64-bit hash: each input bit changes each bit of the result with a probability of about one half. Not
/// cryptographic.
class Digest {
 public:
  void add(std::uint64_t word) { state_ = mixed(state_ ^ word, kFirst); }

  void add(const char* data, std::size_t bytes) {
    add(bytes);
    // Four independent lanes, so that the processor overlaps their multiplications.
    std::uint64_t lanes[4] = {state_, state_ ^ kFirst, state_ ^ kSecond, ~state_};
    for (; bytes >= sizeof lanes; data += sizeof lanes, bytes -= sizeof lanes) {
      std::uint64_t words[4];
      std::memcpy(words, data, sizeof words);
      for (int i = 0; i < 4; ++i) lanes[i] = mixed(lanes[i] ^ words[i], kSecond);
    }
    for (const std::uint64_t lane : lanes) add(lane);
    while (bytes > 0) {
      std::uint64_t word = 0;
      const std::size_t taken = std::min(bytes, sizeof word);
      std::memcpy(&word, data, taken);
      add(word);
      data += taken;
      bytes -= taken;
    }
  }

  std::int64_t value() const { return static_cast<std::int64_t>(mixed(state_, kSecond)); }

 private:
  static constexpr std::uint64_t kFirst = 0x9e3779b97f4a7c15,
                                 kSecond = 0xd6e8feb86659fd93;  // odd, half of the bits set

  /// Combines both halves of the 128-bit product.
  static std::uint64_t mixed(std::uint64_t left, std::uint64_t right) {
    const auto product = static_cast<unsigned __int128>(left ^ (left << 23 | left >> 41)) * right;
    return left + (static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64));
  }

  std::uint64_t state_ = kFirst;
};

/// Adds blocks that are spread evenly over each row. The blocks of different rows are shifted against each other, so
/// that the sample covers all columns.
void add_sample(const char* data, std::size_t bytes, std::size_t rows, Digest& digest) {
  const std::size_t row_bytes = bytes / rows;
  const std::size_t blocks = std::max<std::size_t>(kSampledBytes / rows / kBlockBytes, 1);
  const std::size_t spacing = row_bytes / blocks;
  for (std::size_t row = 0; row < rows; ++row) {
    const char* const begin = data + row * row_bytes;
    for (std::size_t block = 0; block < blocks; ++block) {
      const std::size_t room = spacing > kBlockBytes ? spacing - kBlockBytes : 0;
      const std::size_t shift = room == 0 ? 0 : (row * blocks + block) * kBlockBytes % (room + 1);
      digest.add(begin + block * spacing + shift, std::min(kBlockBytes, spacing));
    }
  }
}

void add_strings(const Tensor& tensor, bool whole, Digest& digest) {
  const auto texts = tensor.flat<tensorflow::tstring>();
  const std::size_t max_bytes =
      whole ? SIZE_MAX : std::max<std::size_t>(kMaxBytes / std::max<int64_t>(texts.size(), 1), 2 * kBlockBytes);
  for (int64_t i = 0; i < texts.size(); ++i) {
    const tensorflow::tstring& text = texts(i);
    digest.add(text.size());
    const std::size_t taken = std::min<std::size_t>(text.size(), max_bytes / 2);
    digest.add(text.data(), text.size() <= max_bytes ? text.size() : taken);
    if (text.size() > max_bytes) digest.add(text.data() + text.size() - taken, taken);
  }
}

void add_tensor(const Tensor& tensor, bool whole, Digest& digest) {
  digest.add(static_cast<std::uint64_t>(tensor.dtype()));
  for (int i = 0; i < tensor.dims(); ++i) digest.add(static_cast<std::uint64_t>(tensor.dim_size(i)));
  if (tensor.NumElements() == 0) return;
  if (tensor.dtype() == tensorflow::DT_STRING) {
    add_strings(tensor, whole, digest);
    return;
  }
  const std::size_t bytes = tensor.TotalBytes();
  const std::size_t rows = tensor.dims() == 0 ? 1 : static_cast<std::size_t>(tensor.dim_size(0));
  if (whole || bytes <= kMaxBytes) {
    digest.add(tensor.tensor_data().data(), bytes);
  } else {
    add_sample(tensor.tensor_data().data(), bytes, rows, digest);
  }
}

class DigestKernel : public tensorflow::OpKernel {
 public:
  explicit DigestKernel(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("whole", &whole_));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    Digest digest;
    for (int i = 0; i < context->num_inputs(); ++i) {
      const Tensor& tensor = context->input(i);
      OP_REQUIRES(context, tensor.dtype() == tensorflow::DT_STRING || tensorflow::DataTypeCanUseMemcpy(tensor.dtype()),
                  error_status(FARANDOLE_UNSUPPORTED, "a digest is of numbers and strings, not of " +
                                                          tensorflow::DataTypeString(tensor.dtype())));
      add_tensor(tensor, whole_, digest);
    }
    Tensor* result = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &result));
    result->scalar<int64_t>()() = digest.value();
  }

 private:
  bool whole_ = false;
};

REGISTER_KERNEL_BUILDER(Name("FarandoleDigest").Device(tensorflow::DEVICE_CPU), DigestKernel);

}  // namespace
}  // namespace farandole_tensorflow
