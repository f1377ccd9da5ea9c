// SPDX-License-Identifier: Apache-2.0
// The Python module of the library.
#include <pybind11/stl.h>

#include <torch/csrc/utils/pybind.h>

#include <utility>

#include "backend.h"
#include "errors.h"
#include "process_end.h"

namespace farandole_torch {
namespace {

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                         std::vector<int32_t> global_ranks, int global_size, double timeout_seconds,
                                         std::string name) {
  GroupPlan plan{store, rank, size, std::move(global_ranks), global_size, {}, std::move(name)};
  plan.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(timeout_seconds));
  return c10::make_intrusive<FarandoleBackend>(plan);
}

}  // namespace
}  // namespace farandole_torch

PYBIND11_MODULE(farandole_torch, module) {
  using pybind11::call_guard;
  using pybind11::gil_scoped_release;
  module.attr("mark") = FARANDOLE_TORCH_BUILD;
  module.def("set_exception_class", [](const std::string& kind_name, const pybind11::object& type) {
    farandole_torch::set_exception_class(kind_name, type.ptr());
  });
  module.def("create", &farandole_torch::create, call_guard<gil_scoped_release>());
  module.def("abort", &farandole_torch::Job::abort, call_guard<gil_scoped_release>());
  module.def("accept_extension_devices", [] { farandole_torch::extension_has_cuda_memory = true; });
  module.def("leave", &farandole_torch::Job::leave, call_guard<gil_scoped_release>());
  module.def("begin_process_end", &farandole_torch::begin_process_end);
  module.def("set_failure_text",
             [](const pybind11::object& function) { farandole_torch::set_failure_text(function.ptr()); });
}
