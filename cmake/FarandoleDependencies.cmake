# SPDX-License-Identifier: Apache-2.0
# Looks for all needed libraries in the system; downloads nothing. scripts/setup.sh installs missing packages. If a
# parent project already has a target for a library, that target is used.
include_guard()

set(farandole_oldest_GNU 12)
set(farandole_oldest_Clang 14)
if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS "${farandole_oldest_${CMAKE_CXX_COMPILER_ID}}")
  message(FATAL_ERROR "${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}; g++ >= 12 or "
                      "clang >= 14 is needed. Install one, name it by CXX, and configure anew with --fresh, as in: "
                      "CXX=g++-12 cmake --fresh --preset release")
endif()

set(FARANDOLE_MISSING "")
set(FARANDOLE_MISSING_PACKAGES "")
# farandole_need(NAME TARGET DEBIAN_PACKAGE arguments of find_package…)
macro(farandole_need name target debian_package)
  if(NOT TARGET ${target})
    find_package(${name} ${ARGN} QUIET)
    # A package may be incomplete, for example GoogleTest without GoogleMock.
    if(NOT TARGET ${target})
      list(APPEND FARANDOLE_MISSING "${name}")
      list(APPEND FARANDOLE_MISSING_PACKAGES "${debian_package}")
    endif()
  endif()
endmacro()

find_package(Threads REQUIRED)
farandole_need(fmt fmt::fmt libfmt-dev)
farandole_need(spdlog spdlog::spdlog libspdlog-dev)
farandole_need(nlohmann_json nlohmann_json::nlohmann_json nlohmann-json3-dev)
# libsodium has no CMake package. A wheel links libsodium statically, because the system may lack the shared library.
# The symbols of libsodium are then hidden, like all hidden symbols of the library.
if(NOT TARGET farandole_sodium)
  set(farandole_sodium_name sodium)
  if(SKBUILD)
    set(farandole_sodium_name libsodium.a)
  endif()
  find_library(FARANDOLE_SODIUM_LIBRARY ${farandole_sodium_name})
  find_path(FARANDOLE_SODIUM_HEADERS sodium.h)
  mark_as_advanced(FARANDOLE_SODIUM_LIBRARY FARANDOLE_SODIUM_HEADERS)
  if(FARANDOLE_SODIUM_LIBRARY AND FARANDOLE_SODIUM_HEADERS)
    add_library(farandole_sodium UNKNOWN IMPORTED)
    set_target_properties(farandole_sodium PROPERTIES IMPORTED_LOCATION ${FARANDOLE_SODIUM_LIBRARY}
                                                      INTERFACE_INCLUDE_DIRECTORIES ${FARANDOLE_SODIUM_HEADERS})
  else()
    list(APPEND FARANDOLE_MISSING "libsodium")
    list(APPEND FARANDOLE_MISSING_PACKAGES "libsodium-dev")
  endif()
endif()
if(FARANDOLE_BUILD_PROGRAMS)
  farandole_need(Boost Boost::program_options libboost-program-options-dev 1.74 COMPONENTS program_options)
endif()
if(FARANDOLE_BUILD_TESTS)
  farandole_need(GTest GTest::gmock "libgtest-dev libgmock-dev")
endif()
set(FARANDOLE_HAVE_TRAINER OFF)
set(FARANDOLE_NO_TRAINER "FARANDOLE_BUILD_TRAINER=OFF")
if(NOT FARANDOLE_BUILD_TRAINER STREQUAL OFF)
  find_package(ZLIB QUIET)
  find_package(PNG QUIET)
  find_package(JPEG QUIET)
  find_package(Eigen3 3.4 QUIET NO_MODULE)
  find_package(dnnl 2.5 QUIET)
  find_package(OpenMP QUIET COMPONENTS CXX)
  find_package(Boost 1.74 QUIET COMPONENTS program_options)
  set(FARANDOLE_NO_TRAINER "")
  set(trainer_packages "")
  foreach(part "ZLIB_FOUND|zlib|zlib1g-dev" "PNG_FOUND|libpng|libpng-dev" "JPEG_FOUND|libjpeg|libjpeg-dev"
               "Eigen3_FOUND|Eigen >= 3.4|libeigen3-dev" "dnnl_FOUND|oneDNN >= 2.5|libdnnl-dev ocl-icd-opencl-dev"
               "OpenMP_CXX_FOUND|OpenMP|g++" "Boost_FOUND|Boost.Program_options >= 1.74|libboost-program-options-dev")
    string(REPLACE "|" ";" part "${part}")
    list(GET part 0 found)
    if(NOT ${found})
      list(GET part 1 missing)
      list(GET part 2 package)
      list(APPEND FARANDOLE_NO_TRAINER "${missing}")
      list(APPEND trainer_packages "${package}")
    endif()
  endforeach()
  list(JOIN FARANDOLE_NO_TRAINER ", " FARANDOLE_NO_TRAINER)
  list(JOIN trainer_packages " " trainer_packages)
  if(NOT FARANDOLE_NO_TRAINER)
    set(FARANDOLE_HAVE_TRAINER ON)
  elseif(FARANDOLE_BUILD_TRAINER STREQUAL ON)
    message(FATAL_ERROR "FARANDOLE_BUILD_TRAINER=ON, but CMake does not find: ${FARANDOLE_NO_TRAINER}. Debian and Ubuntu: "
                        "apt-get install ${trainer_packages} (or scripts/setup.sh, which installs all); with AUTO the "
                        "trainer is left out.")
  else()
    set(FARANDOLE_NO_TRAINER "not found: ${FARANDOLE_NO_TRAINER}")
  endif()
endif()

if(FARANDOLE_MISSING)
  list(JOIN FARANDOLE_MISSING ", " missing)
  list(JOIN FARANDOLE_MISSING_PACKAGES " " packages)
  # A notice comes first in the output. The error of CMake below says where CMake has looked.
  message(NOTICE "Farandole needs C++ libraries that CMake does not find here: ${missing}.\n"
                 "  Debian and Ubuntu: apt-get install ${packages}   (or scripts/setup.sh, which installs all)\n"
                 "  elsewhere: install them, and name where they are by CMAKE_PREFIX_PATH (with pip: in the environment)")
  list(GET FARANDOLE_MISSING 0 missing)
  if(NOT missing STREQUAL libsodium)
    find_package(${missing} REQUIRED)
  endif()
  message(FATAL_ERROR "Farandole needs all of ${missing}; see above.")
endif()

# spdlog is compiled in, because its symbols have no version: a program with a different spdlog would replace functions
# of a shared spdlog by its own, and the process would then have spdlog's console lock twice. fmt's symbols have a
# version, so fmt is shared. A wheel has fmt compiled in, too, because the system may lack fmt.
set(FARANDOLE_FMT fmt::fmt)
if(SKBUILD)
  set(FARANDOLE_FMT fmt::fmt-header-only)
endif()
set(FARANDOLE_SPDLOG spdlog::spdlog_header_only)
if(NOT TARGET spdlog::spdlog_header_only)
  set(FARANDOLE_SPDLOG spdlog::spdlog)
endif()

include(FarandoleMpi)
include(FarandolePmix)
include(FarandoleCuda)
include(FarandolePython)
