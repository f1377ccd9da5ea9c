// SPDX-License-Identifier: Apache-2.0
// Tensors of torch as buffers of Farandole.
#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "farandole/collectives.h"

namespace farandole_torch {

/// True in tests, in which torch's device type for extensions, PrivateUse1, has memory of (a double of) CUDA.
inline std::atomic<bool> extension_has_cuda_memory{false};

/// A tensor's memory, as elements of a type that Farandole has. Complex numbers are pairs of floating-point numbers;
/// types that Farandole has not are bytes, which can be moved but not reduced.
struct Elements {
  void* data = nullptr;
  size_t count = 0;
  farandole_dtype dtype = FARANDOLE_U8;
};

/// How a call uses a tensor.
enum class Use { kInput, kOutput, kInPlace };

/// A tensor of a call, and memory in which its values lie in the order of their indices, whatever its strides.
struct Staged {
  at::Tensor tensor;
  at::Tensor memory;  ///< `tensor` itself if it is contiguous, else a contiguous tensor of the same sizes
  Elements elements;  ///< of `memory`
  Use use = Use::kInput;
};

/// Copies the values of inputs that are not contiguous. Results are copied back by FarandoleBackend::Start::use.
/// @param what  name of the call, for errors   @throws InvalidArgument  the tensor is sparse, lies on a device that
/// Farandole has not, or is an output whose elements share memory
Staged stage(const at::Tensor& tensor, Use use, const char* what);
/// The memory of a contiguous tensor.
Elements elements_of(const at::Tensor& tensor);
/// Number of elements of Farandole's type in an element of the tensor's type.
size_t elements_per_number(const at::Tensor& tensor);
/// A reduction, and the factor of PREMUL_SUM. @throws InvalidArgument  Farandole cannot reduce this type so
struct Reduction {
  farandole_reduce_op op = FARANDOLE_SUM;
  double prescale = 1.0;
};
Reduction reduction_of(const c10d::ReduceOp& op, const at::Tensor& tensor, const char* what);

/// Returns the only tensor of a list. @throws InvalidArgument  there are more, or none
at::Tensor& only(std::vector<at::Tensor>& tensors, const char* what);
/// Returns one contiguous tensor in place of a list: the tensors themselves if they lie side by side in memory,
/// otherwise a new tensor, with the values of a list of inputs.
/// @param use  kInput or kOutput   @throws InvalidArgument  types or devices differ, or as `stage`
at::Tensor joined(const std::vector<at::Tensor>& tensors, Use use, const char* what);
/// Copies the parts of `whole` back to the list, unless `whole` is the list's own memory.
void divide(const at::Tensor& whole, std::vector<at::Tensor>& tensors);
/// Number of Farandole's elements of each tensor.
std::vector<size_t> counts_of(const std::vector<at::Tensor>& tensors);

}  // namespace farandole_torch
