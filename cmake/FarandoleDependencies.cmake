# Everything is found on the system; nothing is downloaded. scripts/setup.sh installs what is missing.
include_guard()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Boost 1.74 REQUIRED COMPONENTS program_options)
find_package(ZLIB REQUIRED)
find_package(Eigen3 3.4 QUIET NO_MODULE)
find_package(dnnl 2.6 QUIET)
find_package(OpenMP QUIET COMPONENTS CXX)
if(Eigen3_FOUND AND dnnl_FOUND AND OpenMP_CXX_FOUND)
  set(FARANDOLE_HAVE_TRAINER ON)
else()
  set(FARANDOLE_HAVE_TRAINER OFF)
endif()
if(FARANDOLE_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

include(FarandoleMpi)

# Backends and bindings that this version does not contain yet.
foreach(feature CUDA TENSORFLOW PYTHON)
  if(FARANDOLE_WITH_${feature} STREQUAL ON)
    message(FATAL_ERROR "FARANDOLE_WITH_${feature}=ON, but this version has no ${feature} part yet; use AUTO or OFF.")
  endif()
endforeach()
