// SPDX-License-Identifier: Apache-2.0
// Loading of PMIx's library at run time.
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

/// The functions of PMIx that Farandole calls.
struct PmixApi {
#define FARANDOLE_DECLARE(name) decltype(::name)* name = nullptr;
  FARANDOLE_PMIX_FUNCTIONS(FARANDOLE_DECLARE)
#undef FARANDOLE_DECLARE
};

/// The loaded library.
struct PmixLibrary {
  PmixApi api;
  std::string version;  ///< "4.2.2"
  std::string path;     ///< path of the library's file

  /// "PMIx 4.2.2 (/usr/lib/libpmix.so.2)"
  std::string describe() const;
};

/// Loads PMIx, which stays loaded.
/// @param path  empty: a PMIx that the process has already loaded, else the loader's search, else the build's
/// directories
/// @throws Unsupported  PMIx is missing or cannot be used; names the files that were tried, and a remedy
PmixLibrary load_pmix(const std::string& path);

}  // namespace farandole::pmix
