// SPDX-License-Identifier: Apache-2.0
// The double of cuDNN: convolutions of f32, bf16 and f16 with channels last, computed in f32 on the host in streams of
// the double.
//
// Each algorithm adds the terms of an element in another order, so that a choice of another algorithm shows in the bits
// of results. An algorithm that is said to be nondeterministic begins at a random term. Without CUDNN_FMA_MATH factors
// are rounded as TF32 rounds them. Measured times are random.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "fake_cudnn.h"
#include "fake_device.h"
#include "fake_graphs.h"
#include "fake_options.h"

namespace farandole::fake {
namespace cudnn {

CudnnHandle* handle_of(const char* call, cudnnHandle_t handle) {
  auto* const object = object_of<CudnnHandle>(call, handle);
  if (object == nullptr || &object->device == current_device()) return object;
  misuse("{}: the handle is of device {}, which is not current", call, object->device.ordinal);
  return nullptr;
}

std::uint64_t random_number() {
  static std::atomic<std::uint64_t> calls{0};
  return Random(static_cast<std::uint64_t>(option(Option::kSeed)) + calls.fetch_add(1, std::memory_order_relaxed))
      .next();
}

float read(const void* values, std::size_t index, cudnnDataType_t type) {
  if (type == CUDNN_DATA_HALF) return widen(static_cast<const Half*>(values)[index]);
  if (type == CUDNN_DATA_BFLOAT16) return widen(static_cast<const BFloat16*>(values)[index]);
  return static_cast<const float*>(values)[index];
}
void write(float value, void* values, std::size_t index, cudnnDataType_t type) {
  if (type == CUDNN_DATA_HALF) {
    static_cast<Half*>(values)[index] = narrow_to_half(value);
  } else if (type == CUDNN_DATA_BFLOAT16) {
    static_cast<BFloat16*>(values)[index] = narrow_to_bfloat16(value);
  } else {
    static_cast<float*>(values)[index] = value;
  }
}

std::string& last_error() {
  thread_local std::string text;
  return text;
}

}  // namespace cudnn

namespace {

using cudnn::CudnnHandle;
using cudnn::handle_of;
using cudnn::object_of;
using cudnn::random_number;
using cudnn::read;
using cudnn::write;

/// Four extents, in the order of memory, and the type of the elements.
struct Extents {
  int outer = 0, height = 0, width = 0, channels = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  bool operator==(const Extents&) const = default;
  std::size_t elements() const {
    return static_cast<std::size_t>(outer) * static_cast<std::size_t>(height) * static_cast<std::size_t>(width) *
           static_cast<std::size_t>(channels);
  }
  std::size_t bytes() const { return elements() * cudnn::bytes_of(type); }
};
struct Tensor : Handle {
  static constexpr Kind kKind = Kind::kCudnnTensor;
  Tensor() : Handle(kKind) {}
  Extents extents;
};
struct Filters : Handle {
  static constexpr Kind kKind = Kind::kCudnnFilters;
  Filters() : Handle(kKind) {}
  Extents extents;  // `outer`: output channels
};
struct Convolution : Handle {
  static constexpr Kind kKind = Kind::kCudnnConvolution;
  Convolution() : Handle(kKind) {}
  int padding = 0, stride = 0;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

template <class Object, class Pointer>
cudnnStatus_t create(Pointer* pointer) {
  *pointer = reinterpret_cast<Pointer>(&make_kept<Object>());
  return CUDNN_STATUS_SUCCESS;
}
template <class Object, class Pointer>
cudnnStatus_t destroy(const char* call, Pointer pointer) {
  auto* const object = object_of<Object>(call, pointer);
  if (object == nullptr) return CUDNN_STATUS_BAD_PARAM;
  object->die();
  return CUDNN_STATUS_SUCCESS;
}
bool is_known(cudnnDataType_t type) {
  return type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16;
}

template <class Object, class Pointer>
cudnnStatus_t set_extents(const char* call, Pointer pointer, bool is_supported, const Extents& extents) {
  auto* const object = object_of<Object>(call, pointer);
  const auto values = {extents.outer, extents.height, extents.width, extents.channels};
  if (object == nullptr || std::min(values) < 1) return CUDNN_STATUS_BAD_PARAM;
  if (!is_supported) return CUDNN_STATUS_NOT_SUPPORTED;
  object->extents = extents;
  return CUDNN_STATUS_SUCCESS;
}

// Algorithms.

enum class Pass : std::uint8_t { kForward, kBackwardData, kBackwardFilter };

/// Kinds of algorithms, in the order of the heuristics.
enum class Trait : std::uint8_t { kUnsupported, kNondeterministic, kLarge, kWithWorkspace, kWithoutWorkspace };
/// The numbers of the algorithms of each pass, in the order of Trait.
constexpr std::array<std::array<cudnnConvolutionAlgo_t, 5>, 3> kAlgorithms{
    {{5, 7, 2, 1, 0}, {3, 0, 2, 1, 5}, {6, 0, 2, 1, 5}}};
/// More than any device has.
constexpr std::size_t kLargeWorkspace = std::size_t{1} << 50;

std::size_t workspace_of(Trait trait) {
  switch (trait) {
    case Trait::kLarge:
      return kLargeWorkspace;
    case Trait::kNondeterministic:
    case Trait::kWithWorkspace:
      return static_cast<std::size_t>(option(Option::kCudnnWorkspace));
    default:
      return 0;
  }
}
/// Returns false if the pass has no such algorithm.
bool find_trait(Pass pass, cudnnConvolutionAlgo_t algorithm, Trait& trait) {
  const auto& numbers = kAlgorithms[static_cast<std::size_t>(pass)];
  const auto* const found = std::ranges::find(numbers, algorithm);
  trait = static_cast<Trait>(found - numbers.begin());
  return found != numbers.end() && trait != Trait::kUnsupported;
}

/// A convolution of one pass; `input`, `filters` and `output` are operands or the result.
struct Job {
  Pass pass;
  Extents input, filters, output;
  int padding, stride;
  bool is_exact;           // no TF32
  std::size_t first_term;  // of each sum, modulo the number of terms
  float alpha, beta;
  const void *first, *second;
  void* result;
  unsigned char* workspace;
  std::size_t workspace_bytes;

  /// A factor as the units of the device read it.
  float factor(float value) const {
    return is_exact ? value : std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xffffe000U);
  }
  static float at(const void* values, const Extents& e, int outer, int y, int x, int channel) {
    const auto row = static_cast<std::size_t>(outer) * static_cast<std::size_t>(e.height) + static_cast<std::size_t>(y);
    const std::size_t pixel = row * static_cast<std::size_t>(e.width) + static_cast<std::size_t>(x);
    return read(values, pixel * static_cast<std::size_t>(e.channels) + static_cast<std::size_t>(channel), e.type);
  }
  /// The product of input (sample, y, x, channel) and output gradient, or filter; 0 outside the input.
  float forward_term(std::size_t term, const std::array<int, 4>& at_output) const {
    const auto [channel, kx, ky] = split(term, filters.channels, filters.width);
    const auto [sample, oy, ox, outer] = at_output;
    const int y = oy * stride - padding + ky, x = ox * stride - padding + kx;
    if (y < 0 || y >= input.height || x < 0 || x >= input.width) return 0;
    return factor(at(first, input, sample, y, x, channel)) * factor(at(second, filters, outer, ky, kx, channel));
  }
  float data_term(std::size_t term, const std::array<int, 4>& at_input) const {
    const auto [outer, kx, ky] = split(term, filters.outer, filters.width);
    const auto [sample, y, x, channel] = at_input;
    const int down = y + padding - ky, right = x + padding - kx;
    if (down < 0 || right < 0 || down % stride != 0 || right % stride != 0) return 0;
    const int oy = down / stride, ox = right / stride;
    if (oy >= output.height || ox >= output.width) return 0;
    return factor(at(first, filters, outer, ky, kx, channel)) * factor(at(second, output, sample, oy, ox, outer));
  }
  float filter_term(std::size_t term, const std::array<int, 4>& at_filter) const {
    const auto [ox, oy, sample] = split(term, output.width, output.height);
    const auto [outer, ky, kx, channel] = at_filter;
    const int y = oy * stride - padding + ky, x = ox * stride - padding + kx;
    if (y < 0 || y >= input.height || x < 0 || x >= input.width) return 0;
    return factor(at(first, input, sample, y, x, channel)) * factor(at(second, output, sample, oy, ox, outer));
  }

  void compute() const {
    std::fill_n(workspace, workspace_bytes, 0xff);
    switch (pass) {
      case Pass::kForward:
        return sum_all(output, filters.elements() / static_cast<std::size_t>(filters.outer), &Job::forward_term);
      case Pass::kBackwardData:
        return sum_all(input, filters.elements() / static_cast<std::size_t>(filters.channels), &Job::data_term);
      case Pass::kBackwardFilter:
        return sum_all(filters, output.elements() / static_cast<std::size_t>(output.channels), &Job::filter_term);
    }
  }

 private:
  static std::array<int, 3> split(std::size_t index, int inner, int middle) {
    const auto i = static_cast<int>(index);
    return {i % inner, i / inner % middle, i / inner / middle};
  }
  void sum_all(const Extents& of, std::size_t terms,
               float (Job::*term)(std::size_t, const std::array<int, 4>&) const) const {
    for (std::size_t element = 0; element < of.elements(); ++element) {
      const auto [x, y, outer] = split(element / static_cast<std::size_t>(of.channels), of.width, of.height);
      const std::array<int, 4> place{outer, y, x, static_cast<int>(element % static_cast<std::size_t>(of.channels))};
      float sum = 0;
      for (std::size_t k = 0; k < terms; ++k) sum += (this->*term)((k + first_term) % terms, place);
      write(alpha * sum + (beta == 0 ? 0 : beta * read(result, element, of.type)), result, element, of.type);
    }
  }
};

struct RunningJob {
  Job job;
  bool only_spoils;  // a measurement
};

void run_job(void* argument, int is_possible) {
  if (is_possible == 0) return;
  const auto& running = *static_cast<const RunningJob*>(argument);
  const Job& job = running.job;
  if (!running.only_spoils) return job.compute();
  const Extents& of = job.pass == Pass::kForward        ? job.output
                      : job.pass == Pass::kBackwardData ? job.input
                                                        : job.filters;
  std::fill_n(static_cast<unsigned char*>(job.result), of.bytes(), 0xff);  // NaN in each type
}

void release_job(void* argument) {
  delete static_cast<RunningJob*>(argument);
}

/// The algorithms in the order of the heuristics. The fastest ones cannot be used, for a reason each.
std::vector<cudnnConvolutionAlgoPerf_t> algorithms_of(Pass pass, cudnnMathType_t math) {
  std::vector<cudnnConvolutionAlgoPerf_t> algorithms;
  const auto& numbers = kAlgorithms[static_cast<std::size_t>(pass)];
  for (std::size_t k = 0; k < numbers.size(); ++k) {
    const auto trait = static_cast<Trait>(k);
    cudnnConvolutionAlgoPerf_t& algorithm = algorithms.emplace_back();
    algorithm.algo = numbers[k];
    algorithm.status = trait == Trait::kUnsupported ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
    algorithm.time = static_cast<float>(k) + 1;
    algorithm.memory = workspace_of(trait);
    algorithm.determinism = trait == Trait::kNondeterministic ? CUDNN_NON_DETERMINISTIC : CUDNN_DETERMINISTIC;
    algorithm.mathType = math;
  }
  return algorithms;
}

/// The algorithms as a measurement finds them: those that fit, also with the default math, in an order of chance. The
/// nondeterministic ones are the fastest.
std::vector<cudnnConvolutionAlgoPerf_t> measured(Pass pass, cudnnMathType_t math, std::size_t bytes) {
  std::vector<cudnnConvolutionAlgoPerf_t> all = algorithms_of(pass, math);
  if (math != CUDNN_DEFAULT_MATH) std::ranges::copy(algorithms_of(pass, CUDNN_DEFAULT_MATH), std::back_inserter(all));
  for (cudnnConvolutionAlgoPerf_t& algorithm : all) {
    if (algorithm.status == CUDNN_STATUS_SUCCESS && algorithm.memory > bytes)
      algorithm.status = CUDNN_STATUS_NOT_SUPPORTED;
    if (algorithm.status != CUDNN_STATUS_SUCCESS) {
      algorithm.time = -1;
    } else if (algorithm.determinism == CUDNN_DETERMINISTIC) {
      algorithm.time = 10 + static_cast<float>(random_number() % 1000);
    }
  }
  std::ranges::sort(all, {}, [](const auto& algorithm) {
    return std::pair(algorithm.status != CUDNN_STATUS_SUCCESS, algorithm.time);
  });
  return all;
}

template <class Pointer>
bool read_extents(const char* call, Pointer pointer, Extents& extents) {
  using Object = std::conditional_t<std::is_same_v<Pointer, cudnnTensorDescriptor_t>, Tensor, Filters>;
  const auto* const object = object_of<Object>(call, pointer);
  if (object != nullptr) extents = object->extents;
  return object != nullptr;
}

/// The addresses of a call.
struct Arrays {
  const void *first, *second;
  void *result, *workspace;
  std::size_t workspace_bytes;
};
/// Where a query writes its results.
struct Answer {
  int requested;
  int* returned;
  cudnnConvolutionAlgoPerf_t* algorithms;

  cudnnStatus_t give(const std::vector<cudnnConvolutionAlgoPerf_t>& found) const {
    *returned = std::min(requested, static_cast<int>(found.size()));
    std::copy_n(found.begin(), *returned, algorithms);
    return CUDNN_STATUS_SUCCESS;
  }
};

/// A call of one of the functions that all passes have.
struct PassCall {
  const char* name;
  Pass pass;
  CudnnHandle* handle = nullptr;  // null: the call is wrong
  const Convolution* convolution = nullptr;
  Extents first{}, second{}, result{};

  template <class First, class Second, class Result>
  void read(cudnnHandle_t of, First first_descriptor, Second second_descriptor, Result result_descriptor,
            cudnnConvolutionDescriptor_t convolution_descriptor) {
    handle = handle_of(name, of);
    convolution = object_of<Convolution>(name, convolution_descriptor);
    const bool are_alive = convolution != nullptr && read_extents(name, first_descriptor, first) &&
                           read_extents(name, second_descriptor, second) &&
                           read_extents(name, result_descriptor, result);
    if (!are_alive || !match()) handle = nullptr;
  }

  cudnnStatus_t give_algorithms(const Answer& answer) const {
    return handle == nullptr ? CUDNN_STATUS_BAD_PARAM : answer.give(algorithms_of(pass, convolution->math));
  }
  cudnnStatus_t measure(const Arrays& arrays, const Answer& answer) const {
    if (handle == nullptr) return CUDNN_STATUS_BAD_PARAM;
    if (captures_forbid_unsafe_calls()) misuse("{}, which waits for the device, while a stream is captured", name);
    if (const cudnnStatus_t failed = enqueue(job(arrays), true); failed != CUDNN_STATUS_SUCCESS) return failed;
    return answer.give(measured(pass, convolution->math, arrays.workspace_bytes));
  }
  cudnnStatus_t give_workspace_size(cudnnConvolutionAlgo_t algorithm, std::size_t* bytes) const {
    Trait trait{};
    if (handle == nullptr) return CUDNN_STATUS_BAD_PARAM;
    if (!find_trait(pass, algorithm, trait)) return CUDNN_STATUS_NOT_SUPPORTED;
    *bytes = workspace_of(trait);
    return CUDNN_STATUS_SUCCESS;
  }
  cudnnStatus_t compute(cudnnConvolutionAlgo_t algorithm, const Arrays& arrays, float alpha, float beta) const {
    Trait trait{};
    if (handle == nullptr) return CUDNN_STATUS_BAD_PARAM;
    if (!find_trait(pass, algorithm, trait)) return CUDNN_STATUS_NOT_SUPPORTED;
    if (arrays.workspace_bytes < workspace_of(trait)) return CUDNN_STATUS_BAD_PARAM;
    Job wanted = job(arrays);
    wanted.first_term =
        trait == Trait::kNondeterministic ? random_number() % 1000 : static_cast<std::size_t>(algorithm);
    wanted.alpha = alpha;
    wanted.beta = beta;
    return enqueue(wanted, false);
  }

 private:
  Job job(const Arrays& arrays) const {
    Job job{};
    job.pass = pass;
    job.padding = convolution->padding;
    job.stride = convolution->stride;
    job.input = pass == Pass::kBackwardData ? result : first;
    job.filters = pass == Pass::kForward ? second : pass == Pass::kBackwardData ? first : result;
    job.output = pass == Pass::kForward ? result : second;
    job.is_exact = convolution->math == CUDNN_FMA_MATH || job.input.type != CUDNN_DATA_FLOAT;
    job.first = arrays.first;
    job.second = arrays.second;
    job.result = arrays.result;
    job.workspace = static_cast<unsigned char*>(arrays.workspace);
    job.workspace_bytes = arrays.workspace_bytes;
    return job;
  }
  bool match() const {
    const Job all = job({});
    const auto outputs = [&](int extent, int kernel) { return (extent + 2 * all.padding - kernel) / all.stride + 1; };
    return all.input.channels == all.filters.channels && all.input.type == all.filters.type &&
           all.output == Extents{all.input.outer, outputs(all.input.height, all.filters.height),
                                 outputs(all.input.width, all.filters.width), all.filters.outer, all.input.type};
  }
  cudnnStatus_t enqueue(Job wanted, bool only_spoils) const {
    const std::array<FakeDeviceAccess, 4> accesses{{{wanted.result, result.bytes(), 1},
                                                    {wanted.first, first.bytes(), 0},
                                                    {wanted.second, second.bytes(), 0},
                                                    {wanted.workspace, wanted.workspace_bytes, 1}}};
    const auto translate = [](auto*& address) {
      address = static_cast<std::remove_reference_t<decltype(address)>>(fake_device_stream_address(address));
    };
    translate(wanted.first);
    translate(wanted.second);
    translate(wanted.result);
    translate(wanted.workspace);
    auto running = std::make_unique<RunningJob>(RunningJob{wanted, only_spoils});
    const int failed = fake_device_launch(handle->stream, name, &run_job, running.get(), &release_job, accesses.data(),
                                          accesses.size());
    if (failed != 0) return CUDNN_STATUS_EXECUTION_FAILED;
    (void)running.release();
    return CUDNN_STATUS_SUCCESS;
  }
};

}  // namespace

// NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses): cuDNN's names
extern "C" {
std::size_t cudnnGetVersion() {
  return static_cast<std::size_t>(option(Option::kCudnnVersion));
}
std::size_t cudnnGetCudartVersion() {
  return static_cast<std::size_t>(option(Option::kCudnnCudaVersion));
}
const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_NOT_INITIALIZED:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_EXECUTION_FAILED:
      return "CUDNN_STATUS_EXECUTION_FAILED";
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    default:
      return "a status of cuDNN";
  }
}
void cudnnGetLastErrorString(char* message, std::size_t bytes) {
  if (bytes == 0) return;
  message[cudnn::last_error().copy(message, bytes - 1)] = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  FARANDOLE_CUDNN_CALL;
  if (current_device() == nullptr) return CUDNN_STATUS_NOT_INITIALIZED;
  *handle = reinterpret_cast<cudnnHandle_t>(&make_kept<CudnnHandle>(*current_device()));
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  FARANDOLE_CUDNN_CALL;
  if (handle_of(__func__, handle) == nullptr) return CUDNN_STATUS_BAD_PARAM;
  return destroy<CudnnHandle>(__func__, handle);
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cuda::CUstream stream) {
  FARANDOLE_CUDNN_CALL;
  CudnnHandle* const object = handle_of(__func__, handle);
  if (object == nullptr) return CUDNN_STATUS_BAD_PARAM;
  object->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* descriptor) {
  FARANDOLE_CUDNN_CALL;
  return create<Tensor>(descriptor);
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t descriptor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int samples, int channels, int height, int width) {
  FARANDOLE_CUDNN_CALL;
  return set_extents<Tensor>(__func__, descriptor, format == CUDNN_TENSOR_NHWC && is_known(type),
                             {samples, height, width, channels, type});
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor) {
  FARANDOLE_CUDNN_CALL;
  return destroy<Tensor>(__func__, descriptor);
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* descriptor) {
  FARANDOLE_CUDNN_CALL;
  return create<Filters>(descriptor);
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t descriptor, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int outputs, int inputs, int height, int width) {
  FARANDOLE_CUDNN_CALL;
  return set_extents<Filters>(__func__, descriptor, format == CUDNN_TENSOR_NHWC && is_known(type),
                              {outputs, height, width, inputs, type});
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t descriptor) {
  FARANDOLE_CUDNN_CALL;
  return destroy<Filters>(__func__, descriptor);
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* descriptor) {
  FARANDOLE_CUDNN_CALL;
  return create<Convolution>(descriptor);
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t descriptor, int padding_height,
                                              int padding_width, int stride_height, int stride_width,
                                              int dilation_height, int dilation_width, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute_type) {
  FARANDOLE_CUDNN_CALL;
  auto* const object = object_of<Convolution>(__func__, descriptor);
  if (object == nullptr || padding_height < 0 || stride_height < 1) return CUDNN_STATUS_BAD_PARAM;
  if (padding_width != padding_height || stride_width != stride_height || dilation_height != 1 || dilation_width != 1 ||
      mode != CUDNN_CROSS_CORRELATION || compute_type != CUDNN_DATA_FLOAT) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  object->padding = padding_height;
  object->stride = stride_height;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t descriptor, cudnnMathType_t math) {
  FARANDOLE_CUDNN_CALL;
  auto* const object = object_of<Convolution>(__func__, descriptor);
  if (object == nullptr) return CUDNN_STATUS_BAD_PARAM;
  object->math = math;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t descriptor) {
  FARANDOLE_CUDNN_CALL;
  return destroy<Convolution>(__func__, descriptor);
}

#define FARANDOLE_CUDNN_PASS(Name, First, Second, Result)                                                              \
  cudnnStatus_t cudnnGetConvolution##Name##Algorithm_v7(                                                               \
      cudnnHandle_t handle, First first_descriptor, Second second_descriptor,                                          \
      cudnnConvolutionDescriptor_t convolution, Result result_descriptor, int requested, int* returned,                \
      cudnnConvolutionAlgoPerf_t* algorithms) {                                                                        \
    FARANDOLE_CUDNN_CALL;                                                                                              \
    PassCall call{__func__, Pass::k##Name};                                                                            \
    call.read(handle, first_descriptor, second_descriptor, result_descriptor, convolution);                            \
    return call.give_algorithms({requested, returned, algorithms});                                                    \
  }                                                                                                                    \
  cudnnStatus_t cudnnFindConvolution##Name##AlgorithmEx(                                                               \
      cudnnHandle_t handle, First first_descriptor, const void* first, Second second_descriptor, const void* second,   \
      cudnnConvolutionDescriptor_t convolution, Result result_descriptor, void* result, int requested, int* returned,  \
      cudnnConvolutionAlgoPerf_t* algorithms, void* workspace, std::size_t bytes) {                                    \
    FARANDOLE_CUDNN_CALL;                                                                                              \
    PassCall call{__func__, Pass::k##Name};                                                                            \
    call.read(handle, first_descriptor, second_descriptor, result_descriptor, convolution);                            \
    return call.measure({first, second, result, workspace, bytes}, {requested, returned, algorithms});                 \
  }                                                                                                                    \
  cudnnStatus_t cudnnGetConvolution##Name##WorkspaceSize(                                                              \
      cudnnHandle_t handle, First first_descriptor, Second second_descriptor,                                          \
      cudnnConvolutionDescriptor_t convolution, Result result_descriptor, cudnnConvolutionAlgo_t algorithm,            \
      std::size_t* bytes) {                                                                                            \
    FARANDOLE_CUDNN_CALL;                                                                                              \
    PassCall call{__func__, Pass::k##Name};                                                                            \
    call.read(handle, first_descriptor, second_descriptor, result_descriptor, convolution);                            \
    return call.give_workspace_size(algorithm, bytes);                                                                 \
  }                                                                                                                    \
  cudnnStatus_t cudnnConvolution##Name(                                                                                \
      cudnnHandle_t handle, const void* alpha, First first_descriptor, const void* first, Second second_descriptor,    \
      const void* second, cudnnConvolutionDescriptor_t convolution, cudnnConvolutionAlgo_t algorithm, void* workspace, \
      std::size_t bytes, const void* beta, Result result_descriptor, void* result) {                                   \
    FARANDOLE_CUDNN_CALL;                                                                                              \
    PassCall call{__func__, Pass::k##Name};                                                                            \
    call.read(handle, first_descriptor, second_descriptor, result_descriptor, convolution);                            \
    return call.compute(algorithm, {first, second, result, workspace, bytes}, *static_cast<const float*>(alpha),       \
                        *static_cast<const float*>(beta));                                                             \
  }
FARANDOLE_CUDNN_PASS(Forward, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t)
FARANDOLE_CUDNN_PASS(BackwardData, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t)
FARANDOLE_CUDNN_PASS(BackwardFilter, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t)
}  // extern "C"
// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)

}  // namespace farandole::fake
