// SPDX-License-Identifier: Apache-2.0
#include "errors.h"

#include <utility>

namespace farandole_torch {
namespace {

// Never destroyed: the interpreter may have ended before static objects are destroyed. Guarded by the GIL.
py::object& exception_maker() {
  static auto* const maker = new py::object;
  return *maker;
}

}  // namespace

void set_exception_maker(py::object make) {
  exception_maker() = std::move(make);
}

std::exception_ptr make_exception(farandole_error_kind kind, const std::string& text) {
  const py::gil_scoped_acquire gil;
  const py::object exception = exception_maker()(farandole_error_kind_name(kind), text);
  PyErr_SetObject(py::type::of(exception).ptr(), exception.ptr());
  return std::make_exception_ptr(py::error_already_set());
}

void throw_error(farandole_error_kind kind, const std::string& text) {
  std::rethrow_exception(make_exception(kind, text));
}

}  // namespace farandole_torch
