// SPDX-License-Identifier: Apache-2.0
#include "errors.h"

#include <array>

namespace farandole_torch {
namespace {

constexpr int kKinds = FARANDOLE_INTERNAL + 1;
/// Python classes by kind; references that are never given back, because errors may outlive the interpreter.
std::array<PyObject*, kKinds> exception_classes{};

/// What the library says of a deadline that the program has set for a process group, and how torch calls that.
constexpr const char* kOwnTimeout = "(the timeout of the communicator)";
constexpr const char* kHowToSetIt =
    "; to change it: init_process_group(timeout=timedelta(minutes=60)), or new_group's timeout";
/// What the library says of a rank that has left the job while others wait for it.
constexpr const char* kHasLeft = " has left the job";
constexpr const char* kWhyItHasLeft =
    "; a rank that has left made fewer calls than the others, for example because its data end earlier: use "
    "torch.distributed.algorithms.join.Join, or give all ranks equally many batches (drop_last=True)";

}  // namespace

PyObject* FarandoleError::python_type() {
  PyObject* const type = exception_classes.at(static_cast<size_t>(kind_));
  return type == nullptr ? PyExc_RuntimeError : type;
}

void set_exception_class(const std::string& kind_name, PyObject* type) {
  for (int kind = 0; kind < kKinds; ++kind) {
    if (kind_name != farandole_error_kind_name(static_cast<farandole_error_kind>(kind))) continue;
    Py_INCREF(type);
    exception_classes.at(static_cast<size_t>(kind)) = type;
  }
}

void throw_error(farandole_error_kind kind, const std::string& text) {
  throw FarandoleError(kind, text);
}

std::exception_ptr make_exception(const farandole_error& error) {
  std::string text = farandole_error_text(&error);
  if (text.find(kOwnTimeout) != std::string::npos) text += kHowToSetIt;
  if (text.find(kHasLeft) != std::string::npos) text += kWhyItHasLeft;
  return std::make_exception_ptr(FarandoleError(farandole_error_get_kind(&error), text));
}

}  // namespace farandole_torch
