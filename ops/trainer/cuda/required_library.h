// SPDX-License-Identifier: Apache-2.0
// Libraries of NVIDIA that the trainer loads, such as cuBLAS.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cuda/library_search.h"

namespace farandole::trainer::cuda {

/// A library to look for.
struct RequiredLibrary {
  std::string_view title;          ///< "cuBLAS"
  std::string_view setting;        ///< the setting that names its file: "FARANDOLE_CUBLAS_LIBRARY"
  std::string_view base;           ///< as find_library's: "libcublas.so"
  std::vector<std::string> names;  ///< likewise: {"libcublas.so.13", "libcublas.so.12"}
  std::string_view remedy;         ///< what to do if there is none
};

/// Loads the first file that passes the check, see find_library.
/// @param chosen  value of the setting   @throws Unsupported  says for each file why it cannot be used, with the remedy
void load_library(const RequiredLibrary& library, const std::string& chosen,
                  const farandole::cuda::LibraryCheck& why_not);

}  // namespace farandole::trainer::cuda
