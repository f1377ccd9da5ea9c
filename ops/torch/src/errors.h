// SPDX-License-Identifier: Apache-2.0
// Errors of Farandole as Python's exceptions.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <string>

#include "farandole/collectives.h"

namespace farandole_torch {

namespace py = pybind11;

/// Sets the function that makes the exception of an error: `make(kind, text)`, kind as farandole_error_kind_name.
void set_exception_maker(py::object make);
/// Returns the exception of an error, as a Python exception: farandole.torch.PeerLost and its like.
std::exception_ptr make_exception(farandole_error_kind kind, const std::string& text);
/// Throws it. @throws  always
[[noreturn]] void throw_error(farandole_error_kind kind, const std::string& text);

/// Receives the error of a C function, and throws it: `check(farandole_barrier(comm, nullptr, Failure()))`.
class Failure {
 public:
  Failure() = default;
  Failure(const Failure&) = delete;
  Failure& operator=(const Failure&) = delete;
  ~Failure() { farandole_error_free(error_); }
  farandole_error** receive() { return &error_; }
  /// @throws  the error, if the function returned one
  void check() const {
    if (error_ != nullptr) throw_error(farandole_error_get_kind(error_), farandole_error_text(error_));
  }

 private:
  farandole_error* error_ = nullptr;
};

/// Calls a C function whose last parameter is the error. @throws  its error
template <class Function, class... Arguments>
void call(Function function, Arguments... arguments) {
  Failure failure;
  function(arguments..., failure.receive());
  failure.check();
}

}  // namespace farandole_torch
