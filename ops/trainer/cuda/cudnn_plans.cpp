// SPDX-License-Identifier: Apache-2.0
#include "cudnn_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "farandole/core/error.h"

namespace farandole::trainer::cuda {
namespace {

constexpr std::size_t kMaxWorkspaceBytes = std::size_t{1} << 30;
/// Results of a query: each of cuDNN's up to 8 algorithms, with each type of math.
constexpr int kMaxOffers = 32;

std::size_t workspace_limit(const Device& device) {
  return std::min(device.info().memory_bytes / 8, kMaxWorkspaceBytes);
}

/// Memory for a measurement: `bytes`, or as much as there is.
class MeasuringMemory {
 public:
  MeasuringMemory(const Cudnn& cudnn, std::size_t bytes) : cudnn_(cudnn), bytes_(bytes) {
    while (memory_ == nullptr && bytes_ >= kMinBytes) {
      try {
        memory_ = cudnn_.device().allocate(bytes_);
      } catch (const DeviceError&) {
        bytes_ /= 2;
      }
    }
    if (memory_ == nullptr) bytes_ = 0;
  }
  ~MeasuringMemory() {
    if (memory_ != nullptr) cudnn_.device().release(memory_);
  }
  MeasuringMemory(const MeasuringMemory&) = delete;
  MeasuringMemory& operator=(const MeasuringMemory&) = delete;
  void* get() const { return memory_; }
  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t kMinBytes = std::size_t{1} << 20;
  const Cudnn& cudnn_;
  std::size_t bytes_;
  void* memory_ = nullptr;
};

/// True if cuDNN, whose extents are ints, can count the elements of each array.
bool fits(const ConvolutionGeometry& g, std::int64_t samples) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  return samples * g.input_elements() <= kMost && samples * g.output_positions() * g.channels <= kMost &&
         g.patch_elements() * g.channels <= kMost && std::max(g.stride, g.padding) <= kMost;
}

cudnnMathType_t cudnn_math_of(cudnnDataType_t type) {
  return type == CUDNN_DATA_FLOAT ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH;
}

/// The calls of a pass, with its descriptors.
template <class First, class Second, class Result>
struct PassCalls {
  First first;
  Second second;
  Result result;
  std::string_view name;
  cudnnStatus_t (*get)(cudnnHandle_t, First, Second, cudnnConvolutionDescriptor_t, Result, int, int*,
                       cudnnConvolutionAlgoPerf_t*);
  cudnnStatus_t (*find)(cudnnHandle_t, First, const void*, Second, const void*, cudnnConvolutionDescriptor_t, Result,
                        void*, int, int*, cudnnConvolutionAlgoPerf_t*, void*, std::size_t);
  cudnnStatus_t (*bytes)(cudnnHandle_t, First, Second, cudnnConvolutionDescriptor_t, Result, cudnnConvolutionAlgo_t,
                         std::size_t*);
  cudnnStatus_t (*compute)(cudnnHandle_t, const void*, First, const void*, Second, const void*,
                           cudnnConvolutionDescriptor_t, cudnnConvolutionAlgo_t, void*, std::size_t, const void*,
                           Result, void*);
};
template <class First, class Second, class Result, class... Functions>
PassCalls(First, Second, Result, Functions...) -> PassCalls<First, Second, Result>;

}  // namespace

CudnnPlan::CudnnPlan(const Cudnn& cudnn, const ConvolutionGeometry& geometry, int samples,
                     const DeviceComputation& computation)
    : cudnn_(cudnn),
      computation_(computation),
      input_(cudnn, cudnn.api().cudnnCreateTensorDescriptor, cudnn.api().cudnnDestroyTensorDescriptor),
      output_(cudnn, cudnn.api().cudnnCreateTensorDescriptor, cudnn.api().cudnnDestroyTensorDescriptor),
      filters_(cudnn, cudnn.api().cudnnCreateFilterDescriptor, cudnn.api().cudnnDestroyFilterDescriptor),
      convolution_(cudnn, cudnn.api().cudnnCreateConvolutionDescriptor, cudnn.api().cudnnDestroyConvolutionDescriptor) {
  const auto extent = [](std::int64_t value) { return static_cast<int>(value); };
  const ConvolutionGeometry& g = geometry;
  const int inputs = extent(g.inputs), channels = extent(g.channels);
  const int kernel = extent(g.kernel), stride = extent(g.stride), padding = extent(g.padding);
  const CudnnApi& api = cudnn.api();
  const cudnnDataType_t type = cudnn_type_of(computation.compute);
  cudnn.check(api.cudnnSetTensor4dDescriptor(input_.get(), CUDNN_TENSOR_NHWC, type, samples, inputs, extent(g.height),
                                             extent(g.width)),
              "cudnnSetTensor4dDescriptor");
  cudnn.check(api.cudnnSetTensor4dDescriptor(output_.get(), CUDNN_TENSOR_NHWC, type, samples, channels,
                                             extent(g.output_height), extent(g.output_width)),
              "cudnnSetTensor4dDescriptor");
  cudnn.check(api.cudnnSetFilter4dDescriptor(filters_.get(), type, CUDNN_TENSOR_NHWC, channels, inputs, kernel, kernel),
              "cudnnSetFilter4dDescriptor");
  cudnn.check(api.cudnnSetConvolution2dDescriptor(convolution_.get(), padding, padding, stride, stride, 1, 1,
                                                  CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
              "cudnnSetConvolution2dDescriptor");
  cudnn.check(api.cudnnSetConvolutionMathType(convolution_.get(), cudnn_math_of(type)), "cudnnSetConvolutionMathType");
}

template <class Use>
void CudnnPlan::with_calls(ConvolutionPass pass, const Use& use) const {
  const CudnnApi& api = cudnn_.api();
#define FARANDOLE_CALLS(Pass)                                                                                         \
  "cudnnConvolution" #Pass, api.cudnnGetConvolution##Pass##Algorithm_v7, api.cudnnFindConvolution##Pass##AlgorithmEx, \
      api.cudnnGetConvolution##Pass##WorkspaceSize, api.cudnnConvolution##Pass
  cudnn_.device().run_bound([&] {
    switch (pass) {
      case ConvolutionPass::kForward:
        return use(PassCalls{input_.get(), filters_.get(), output_.get(), FARANDOLE_CALLS(Forward)});
      case ConvolutionPass::kInputGradient:
        return use(PassCalls{filters_.get(), output_.get(), input_.get(), FARANDOLE_CALLS(BackwardData)});
      case ConvolutionPass::kFilterGradient:
        return use(PassCalls{input_.get(), output_.get(), filters_.get(), FARANDOLE_CALLS(BackwardFilter)});
    }
  });
#undef FARANDOLE_CALLS
}

/// The algorithms that cuDNN offers for a pass, the fastest first.
std::vector<cudnnConvolutionAlgoPerf_t> CudnnPlan::offered(ConvolutionPass pass, const PassArrays& arrays) const {
  std::vector<cudnnConvolutionAlgoPerf_t> offers(kMaxOffers);
  int count = 0;
  with_calls(pass, [&](const auto& calls) {
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    if (computation_.choice == AlgorithmChoice::kFixed) {
      status = calls.get(cudnn_.handle(), calls.first, calls.second, convolution_.get(), calls.result, kMaxOffers,
                         &count, offers.data());
    } else {
      const MeasuringMemory memory(cudnn_, workspace_limit(cudnn_.device()));
      status = calls.find(cudnn_.handle(), calls.first, arrays.first, calls.second, arrays.second, convolution_.get(),
                          calls.result, arrays.result, kMaxOffers, &count, offers.data(), memory.get(), memory.bytes());
      cudnn_.device().synchronize(cudnn_.stream());
    }
    if (status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000) {
      count = 0;
    } else {
      cudnn_.check(status, fmt::format("the choice of an algorithm of {}", calls.name));
    }
  });
  offers.resize(static_cast<std::size_t>(count));
  return offers;
}

/// The algorithms that may be chosen, the best first.
std::vector<CudnnAlgorithm> CudnnPlan::usable(ConvolutionPass pass, const PassArrays& arrays) const {
  std::vector<cudnnConvolutionAlgoPerf_t> offers = offered(pass, arrays);
  const cudnnMathType_t math = cudnn_math_of(cudnn_type_of(computation_.compute));
  std::erase_if(offers, [math](const cudnnConvolutionAlgoPerf_t& offer) {
    return offer.status != CUDNN_STATUS_SUCCESS || offer.determinism != CUDNN_DETERMINISTIC ||
           (offer.mathType != math && offer.mathType != CUDNN_DEFAULT_MATH);
  });
  // cuDNN also measures with the default math, which may be TF32. The algorithm is run without, and may be slower then.
  std::stable_partition(offers.begin(), offers.end(), [math](const auto& offer) { return offer.mathType == math; });
  std::vector<CudnnAlgorithm> algorithms;
  with_calls(pass, [&](const auto& calls) {
    for (const cudnnConvolutionAlgoPerf_t& offer : offers) {
      CudnnAlgorithm algorithm{offer.algo, 0};
      const cudnnStatus_t status = calls.bytes(cudnn_.handle(), calls.first, calls.second, convolution_.get(),
                                               calls.result, algorithm.number, &algorithm.workspace_bytes);
      if (status == CUDNN_STATUS_SUCCESS && algorithm.workspace_bytes <= workspace_limit(cudnn_.device())) {
        algorithms.push_back(algorithm);
      }
    }
  });
  return algorithms;
}

const CudnnAlgorithm* CudnnPlan::algorithm(ConvolutionPass pass, Workspace& workspace, const PassArrays& arrays) {
  Chosen& chosen = chosen_[static_cast<std::size_t>(pass)];
  if (!chosen.is_known) {
    std::size_t too_many = std::numeric_limits<std::size_t>::max();
    for (const CudnnAlgorithm& algorithm : usable(pass, arrays)) {
      if (algorithm.workspace_bytes >= too_many) continue;
      if (has_memory(workspace, algorithm.workspace_bytes)) {
        chosen.algorithm = algorithm;
        break;
      }
      too_many = algorithm.workspace_bytes;
    }
    chosen.is_known = true;
  }
  return chosen.algorithm ? &*chosen.algorithm : nullptr;
}

void CudnnPlan::compute(ConvolutionPass pass, const CudnnAlgorithm& algorithm, Workspace& workspace,
                        const PassArrays& arrays) {
  Workspace::Scope scope(workspace);
  const std::size_t bytes = algorithm.workspace_bytes;
  void* const memory = bytes == 0 ? nullptr : scope.take<std::uint8_t>(bytes).data();
  const float one = 1, zero = 0;
  with_calls(pass, [&](const auto& calls) {
    cudnn_.check(calls.compute(cudnn_.handle(), &one, calls.first, arrays.first, calls.second, arrays.second,
                               convolution_.get(), algorithm.number, memory, bytes, &zero, calls.result, arrays.result),
                 calls.name);
  });
}

bool has_memory(Workspace& workspace, std::size_t bytes) {
  if (bytes == 0) return true;
  try {
    Workspace::Scope scope(workspace);
    scope.take<std::uint8_t>(bytes);
  } catch (const DeviceError&) {
    return false;
  }
  return true;
}

const Cudnn& CudnnPlans::library() {
  if (!cudnn_) cudnn_.emplace(library_.api, device_, stream_);
  return *cudnn_;
}

CudnnPlan* CudnnPlans::plan(const ConvolutionGeometry& geometry, std::int64_t samples) {
  if (!fits(geometry, samples)) return nullptr;
  const Cudnn& cudnn = library();
  const Shape shape{geometry, samples};
  auto found = plans_.find(shape);
  if (found == plans_.end()) {
    if (plans_.size() == kMaxPlans) drop_oldest();
    found = plans_.try_emplace(shape, cudnn, geometry, static_cast<int>(samples), computation_).first;
  }
  found->second.last_use_ = ++uses_;
  return &found->second;
}

std::optional<GradientPlan> CudnnPlans::gradient_plan(const ConvolutionGeometry& geometry, std::int64_t samples,
                                                      Workspace& workspace, const PassArrays& of_filters,
                                                      const PassArrays* of_input) {
  CudnnPlan* const found = plan(geometry, samples);
  if (found == nullptr) return std::nullopt;
  const CudnnAlgorithm* const for_filters = found->algorithm(ConvolutionPass::kFilterGradient, workspace, of_filters);
  const CudnnAlgorithm* const for_input =
      of_input == nullptr ? nullptr : found->algorithm(ConvolutionPass::kInputGradient, workspace, *of_input);
  if (for_filters == nullptr || (of_input != nullptr && for_input == nullptr)) return std::nullopt;
  return GradientPlan{found, for_filters, for_input};
}

void CudnnPlans::drop_oldest() {
  plans_.erase(std::ranges::min_element(plans_, {}, [](const auto& entry) { return entry.second.last_use_; }));
}

}  // namespace farandole::trainer::cuda
