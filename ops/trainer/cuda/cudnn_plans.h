// SPDX-License-Identifier: Apache-2.0
// How cuDNN computes the convolutions of a device: descriptors and algorithms, kept for each shape.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "convolution.h"
#include "cudnn.h"
#include "kernels/device_plugin.h"

namespace farandole::trainer::cuda {

/// The computations of a convolution.
enum class ConvolutionPass : std::uint8_t {
  kForward,         ///< output of input and filters
  kInputGradient,   ///< of filters and output gradient
  kFilterGradient,  ///< of input and output gradient
};

/// The arrays of a pass. Filters are {channels, kernel, kernel, inputs}, as cuDNN has them with channels last.
struct PassArrays {
  const void* first;
  const void* second;
  void* result;
};

struct CudnnAlgorithm {
  cudnnConvolutionAlgo_t number;
  std::size_t workspace_bytes;
};

/// A descriptor of cuDNN.
template <class Handle>
class CudnnDescriptor {
 public:
  using Create = cudnnStatus_t (*)(Handle*);
  using Destroy = cudnnStatus_t (*)(Handle);
  /// @throws DeviceError
  CudnnDescriptor(const Cudnn& cudnn, Create create, Destroy destroy) : destroy_(destroy) {
    cudnn.check(create(&handle_), "making a descriptor of cuDNN");
  }
  ~CudnnDescriptor() { destroy_(handle_); }
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;
  Handle get() const { return handle_; }

 private:
  const Destroy destroy_;
  Handle handle_ = nullptr;
};

/// A convolution of a number of samples. Each pass chooses its algorithm when it is first needed, and keeps it.
///
/// Only algorithms that cuDNN calls deterministic are chosen, with a workspace of up to an eighth of the device's
/// memory, at most 1 GiB, and none that computes floats in TF32. AlgorithmChoice::kFixed takes the first such algorithm
/// in the order of cuDNN's heuristics, which knows the shape, the device and the version of cuDNN.
/// AlgorithmChoice::kMeasured takes the fastest: ranks may choose differently then, and so may two runs, whose results
/// differ in their last digits. If the device has no memory for the workspace, the next algorithm that needs less is
/// taken.
class CudnnPlan {
 public:
  /// @param cudnn  outlives the plan   @param computation  how and in which type   @throws DeviceError
  CudnnPlan(const Cudnn& cudnn, const ConvolutionGeometry& geometry, int samples, const DeviceComputation& computation);

  /// Returns the algorithm; null if cuDNN has none for this shape. The first call for a pass may allocate memory, wait
  /// for the device and overwrite the result, and must not be captured in a graph.
  /// @throws DeviceError
  const CudnnAlgorithm* algorithm(ConvolutionPass pass, Workspace& workspace, const PassArrays& arrays);
  /// Enqueues a pass. @throws DeviceError
  void compute(ConvolutionPass pass, const CudnnAlgorithm& algorithm, Workspace& workspace, const PassArrays& arrays);

 private:
  friend class CudnnPlans;
  struct Chosen {
    bool is_known = false;
    std::optional<CudnnAlgorithm> algorithm;
  };
  template <class Use>
  void with_calls(ConvolutionPass pass, const Use& use) const;
  std::vector<cudnnConvolutionAlgoPerf_t> offered(ConvolutionPass pass, const PassArrays& arrays) const;
  std::vector<CudnnAlgorithm> usable(ConvolutionPass pass, const PassArrays& arrays) const;

  const Cudnn& cudnn_;
  const DeviceComputation computation_;
  const CudnnDescriptor<cudnnTensorDescriptor_t> input_, output_;
  const CudnnDescriptor<cudnnFilterDescriptor_t> filters_;
  const CudnnDescriptor<cudnnConvolutionDescriptor_t> convolution_;
  std::array<Chosen, 3> chosen_;  // by pass
  std::uint64_t last_use_ = 0;    // of CudnnPlans
};

/// How cuDNN computes the gradients of a convolution.
struct GradientPlan {
  CudnnPlan* plan;
  const CudnnAlgorithm* for_filters;
  const CudnnAlgorithm* for_input;  ///< null without a gradient of the input
};

/// True if the workspace has, or can get, this memory.
bool has_memory(Workspace& workspace, std::size_t bytes);

/// The plans of a device's convolutions. Layers of the same shape share a plan. Keeps the kMaxPlans that were used
/// last. Used by one thread at a time.
class CudnnPlans {
 public:
  /// Each geometry has up to five numbers of samples: two of training, of evaluation, and one of prediction.
  static constexpr std::size_t kMaxPlans = 512;

  /// @param library, device  outlive this object
  CudnnPlans(const CudnnLibrary& library, Device& device, StreamView stream, const DeviceComputation& computation)
      : library_(library), device_(device), stream_(stream), computation_(computation) {}

  bool can_be_used() const { return library_.why_not.empty(); }
  /// cuDNN with its handle, which the first call makes. @throws DeviceError
  const Cudnn& library();
  /// Returns the plan, which is valid until the next call; null if the arrays are too large for cuDNN. The first call
  /// makes the handle of cuDNN. @throws DeviceError
  CudnnPlan* plan(const ConvolutionGeometry& geometry, std::int64_t samples);
  /// Returns how to compute the gradients; empty unless cuDNN has an algorithm for each of them. Valid as `plan`, and
  /// with its cost and errors, and those of CudnnPlan::algorithm. @param of_input  null: no gradient of the input
  std::optional<GradientPlan> gradient_plan(const ConvolutionGeometry& geometry, std::int64_t samples,
                                            Workspace& workspace, const PassArrays& of_filters,
                                            const PassArrays* of_input);

 private:
  using Shape = std::pair<ConvolutionGeometry, std::int64_t>;  // with the number of samples
  void drop_oldest();

  const CudnnLibrary& library_;
  Device& device_;
  const StreamView stream_;
  const DeviceComputation computation_;
  std::optional<Cudnn> cudnn_;
  std::map<Shape, CudnnPlan> plans_;
  std::uint64_t uses_ = 0;
};

}  // namespace farandole::trainer::cuda
