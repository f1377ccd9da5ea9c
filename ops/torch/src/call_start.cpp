// SPDX-License-Identifier: Apache-2.0
#include "call_start.h"

#include <c10/util/StringUtil.h>

namespace farandole_torch {

at::Device common_device(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs,
                         const char* title) {
  std::optional<at::Device> device;
  for (const auto* const list : {&inputs, &outputs}) {
    for (const at::Tensor& tensor : *list) {
      if (!device) device = tensor.device();
      if (tensor.device() == *device) continue;
      throw_error(FARANDOLE_INVALID_ARGUMENT,
                  c10::str(title, ": all tensors of a call lie on one device, but one is on ", *device, ", one on ",
                           tensor.device()));
    }
  }
  return device.value_or(at::kCPU);
}

void need_size(const char* what, const char* which, size_t expected, size_t found) {
  if (expected == found) return;
  throw_error(FARANDOLE_INVALID_ARGUMENT, c10::str(what, ": expected ", expected, " ", which, ", got ", found));
}

void need_root(const char* what, int64_t root, int size) {
  if (root >= 0 && root < size) return;
  throw_error(FARANDOLE_INVALID_ARGUMENT, c10::str(what, ": the root is ", root, "; expected 0 to ", size - 1));
}

void need_same_type(const char* what, const at::Tensor& input, const at::Tensor& output) {
  if (input.scalar_type() == output.scalar_type() && input.device() == output.device()) return;
  throw_error(FARANDOLE_INVALID_ARGUMENT, c10::str(what, ": the input is ", input.scalar_type(), " on ", input.device(),
                                                   ", the output ", output.scalar_type(), " on ", output.device()));
}

}  // namespace farandole_torch
