# Everything is found on the system; nothing is downloaded. scripts/setup.sh installs what is missing.
include_guard()

set(farandole_oldest_GNU 12)
set(farandole_oldest_Clang 14)
if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS "${farandole_oldest_${CMAKE_CXX_COMPILER_ID}}")
  message(FATAL_ERROR "${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}; g++ >= 12 or clang >= "
                      "14 is needed. Install one, name it by CXX, and configure anew with --fresh, as in: "
                      "CXX=g++-12 cmake --fresh --preset release")
endif()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
# A wheel needs no library that the system may lack.
if(SKBUILD)
  set(FARANDOLE_FMT fmt::fmt-header-only)
  set(FARANDOLE_SPDLOG spdlog::spdlog_header_only)
else()
  set(FARANDOLE_FMT fmt::fmt)
  set(FARANDOLE_SPDLOG spdlog::spdlog)
endif()
find_package(nlohmann_json REQUIRED)
if(FARANDOLE_BUILD_PROGRAMS OR FARANDOLE_BUILD_TRAINER)
  find_package(Boost 1.74 REQUIRED COMPONENTS program_options)
endif()
set(FARANDOLE_HAVE_TRAINER OFF)
if(FARANDOLE_BUILD_TRAINER)
  find_package(ZLIB REQUIRED)
  find_package(Eigen3 3.4 QUIET NO_MODULE)
  find_package(dnnl 2.6 QUIET)
  find_package(OpenMP QUIET COMPONENTS CXX)
  if(Eigen3_FOUND AND dnnl_FOUND AND OpenMP_CXX_FOUND)
    set(FARANDOLE_HAVE_TRAINER ON)
  endif()
endif()
if(FARANDOLE_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

include(FarandoleMpi)
include(FarandolePython)

# Backends and bindings that this version does not contain yet.
foreach(feature CUDA)
  if(FARANDOLE_WITH_${feature} STREQUAL ON)
    message(FATAL_ERROR "FARANDOLE_WITH_${feature}=ON, but this version has no ${feature} part yet; use AUTO or OFF.")
  endif()
endforeach()
