# SPDX-License-Identifier: Apache-2.0
# Finds the header of PMIx. Nothing is linked: a process loads PMIx's library when it joins a job through PMIx.
#
# Sets FARANDOLE_HAVE_PMIX; FARANDOLE_NO_PMIX, the reason if PMIx is missing; FARANDOLE_PMIX_HEADERS, the directory of
# pmix.h; and FARANDOLE_PMIX_DIRECTORIES, directories of PMIx's library that the loader may not know, joined by ":".
include_guard()

set(FARANDOLE_HAVE_PMIX OFF)
set(FARANDOLE_NO_PMIX "FARANDOLE_WITH_PMIX=OFF")
if(NOT FARANDOLE_WITH_PMIX STREQUAL OFF)
  set(farandole_libraries /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE})
  find_path(FARANDOLE_PMIX_HEADERS pmix.h HINTS ${farandole_libraries}/pmix2/include ${farandole_libraries}/pmix/include
            DOC "Directory of pmix.h")
  mark_as_advanced(FARANDOLE_PMIX_HEADERS)
  if(FARANDOLE_PMIX_HEADERS AND EXISTS ${FARANDOLE_PMIX_HEADERS}/pmix.h)
    set(FARANDOLE_HAVE_PMIX ON)
    list(APPEND FARANDOLE_PMIX_DIRECTORIES ${farandole_libraries}/pmix2/lib ${farandole_libraries}/openmpi/lib
         /usr/lib64 /usr/lib64/openmpi/lib)
    list(JOIN FARANDOLE_PMIX_DIRECTORIES ":" FARANDOLE_PMIX_DIRECTORIES)
  else()
    set(farandole_place "")
    if(FARANDOLE_PMIX_HEADERS)
      set(farandole_place " in ${FARANDOLE_PMIX_HEADERS}")
    endif()
    set(FARANDOLE_NO_PMIX "there is no pmix.h${farandole_place} (Debian and Ubuntu: libpmix-dev)")
    if(FARANDOLE_WITH_PMIX STREQUAL ON)
      message(FATAL_ERROR "FARANDOLE_WITH_PMIX=ON, but ${FARANDOLE_NO_PMIX}. Install it, or name the directory of pmix.h: "
                          "-DFARANDOLE_PMIX_HEADERS=/path/to/include; with AUTO jobs are not joined by PMIx.")
    endif()
  endif()
endif()
