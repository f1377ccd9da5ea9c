// SPDX-License-Identifier: Apache-2.0
#include "required_library.h"

#include <fmt/format.h>

#include "farandole/core/error.h"

namespace farandole::trainer::cuda {

void load_library(const RequiredLibrary& library, const std::string& chosen,
                  const farandole::cuda::LibraryCheck& why_not) {
  const farandole::cuda::FoundLibrary found =
      farandole::cuda::find_library(chosen, library.base, library.names, why_not);
  if (found.handle != nullptr) return;
  const std::string what = chosen.empty() ? fmt::format("no {}", library.title) : std::string(library.setting);
  throw Unsupported(fmt::format("{}: {}; {}", what, found.problem, library.remedy));
}

}  // namespace farandole::trainer::cuda
