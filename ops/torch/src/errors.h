// SPDX-License-Identifier: Apache-2.0
// Errors of Farandole as exceptions, which torch turns into Python's.
#pragma once

#include <torch/csrc/Exceptions.h>

#include <exception>
#include <string>

#include "farandole/collectives.h"

namespace farandole_torch {

/// An error of Farandole. Becomes an exception of the Python class that `set_exception_class` has named for its kind,
/// in whichever way it reaches Python: by a function of the backend, a future, or the backward pass. May be thrown
/// again and again, and made without Python's lock.
class FarandoleError final : public torch::PyTorchError {
 public:
  FarandoleError(farandole_error_kind kind, std::string text) : PyTorchError(std::move(text)), kind_(kind) {}
  PyObject* python_type() override;

 private:
  farandole_error_kind kind_;
};

/// Sets the Python class of a kind's exceptions. @param kind_name  as farandole_error_kind_name. Keeps `type` forever.
void set_exception_class(const std::string& kind_name, PyObject* type);
[[noreturn]] void throw_error(farandole_error_kind kind, const std::string& text);
std::exception_ptr make_exception(const farandole_error& error);

/// Calls a C function whose last parameter is the error. @throws FarandoleError  its error
template <class Function, class... Arguments>
void call(Function function, Arguments... arguments) {
  farandole_error* error = nullptr;
  if (function(arguments..., &error) == 0) return;
  const std::exception_ptr exception = make_exception(*error);
  farandole_error_free(error);
  std::rethrow_exception(exception);
}

}  // namespace farandole_torch
