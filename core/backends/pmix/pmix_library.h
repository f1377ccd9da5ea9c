// SPDX-License-Identifier: Apache-2.0
// PMIx's library, loaded at run time.
#pragma once

#include <pmix.h>

#include <string>

namespace farandole::pmix {

// X(name)
#define FARANDOLE_PMIX_FUNCTIONS(X) \
  X(PMIx_Commit)                    \
  X(PMIx_Error_string)              \
  X(PMIx_Finalize)                  \
  X(PMIx_Get_nb)                    \
  X(PMIx_Get_version)               \
  X(PMIx_Init)                      \
  X(PMIx_Put)

/// What of PMIx is called.
struct PmixApi {
#define FARANDOLE_DECLARE(name) decltype(::name)* name = nullptr;
  FARANDOLE_PMIX_FUNCTIONS(FARANDOLE_DECLARE)
#undef FARANDOLE_DECLARE
};

struct PmixLibrary {
  PmixApi api;
  std::string version;  ///< "4.2.2"
  std::string path;     ///< of its file

  /// "PMIx 4.2.2 (/usr/lib/libpmix.so.2)"
  std::string describe() const;
};

/// @param path  empty: the PMIx that the process has loaded, else the loader's search, else the directories that the
/// build knows. The library stays loaded.
/// @throws Unsupported  there is none, or it can not be used; says where was looked, and what to do
PmixLibrary load_pmix(const std::string& path);

}  // namespace farandole::pmix
