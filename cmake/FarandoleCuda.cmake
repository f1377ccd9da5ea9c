# SPDX-License-Identifier: Apache-2.0
# Finds nvcc, which compiles the kernels for GPUs. The plug-in for CUDA needs nothing of CUDA to be built. Without nvcc
# the plug-in is built without kernels.
#
# Sets FARANDOLE_HAVE_CUDA (ON if the plug-in is built), FARANDOLE_HAVE_KERNELS, and FARANDOLE_NO_KERNELS, the reason
# why there are no kernels.
include_guard()

set(FARANDOLE_HAVE_CUDA OFF)
set(FARANDOLE_HAVE_KERNELS OFF)
set(FARANDOLE_NO_KERNELS "FARANDOLE_WITH_CUDA=OFF")
set(FARANDOLE_CUDA12_NVCC "" CACHE FILEPATH "nvcc of CUDA 12, for a second set of kernels that drivers before 580 load")

# The default is Turing, Ampere, Hopper, and Blackwell in data centres and elsewhere. A GPU also runs binaries of a lower
# minor number of its generation: 8.9 those of 8.0, and 10.3 those of 10.0 (NVIDIA's compatibility guides). PTX of Hopper is
# always built, for every later generation. nvcc takes about 20 seconds per architecture.
set(FARANDOLE_CUDA_ARCHITECTURES 75 80 90 100 120 CACHE STRING
    "GPUs to compile kernels for, by compute capability; those that nvcc does not know are left out")
# Results must be bitwise equal to those of processors, so nothing is fused, flushed to zero or approximated.
set(farandole_nvcc_flags -ccbin ${CMAKE_CXX_COMPILER} -std=c++20 -O3 -DNDEBUG
    -fmad=false -ftz=false -prec-div=true --expt-relaxed-constexpr)

# Sets `out` to the CUDA version of an nvcc as drivers count it: 13000 for 13.0.
function(farandole_nvcc_release nvcc out)
  execute_process(COMMAND ${nvcc} --version OUTPUT_VARIABLE version ERROR_QUIET)
  if(version MATCHES "release ([0-9]+)\\.([0-9]+)")
    math(EXPR release "${CMAKE_MATCH_1} * 1000 + ${CMAKE_MATCH_2} * 10")
    set(${out} ${release} PARENT_SCOPE)
  else()
    message(FATAL_ERROR "${nvcc} --version does not say of which CUDA it is:\n${version}")
  endif()
endfunction()

# Sets `out` to the flags that choose the architectures.
function(farandole_gencode_flags nvcc out)
  execute_process(COMMAND ${nvcc} --list-gpu-code OUTPUT_VARIABLE codes ERROR_QUIET)
  set(flags -gencode arch=compute_90,code=compute_90)
  foreach(architecture ${FARANDOLE_CUDA_ARCHITECTURES})
    if(codes MATCHES "sm_${architecture}[\r\n]")
      list(APPEND flags -gencode arch=compute_${architecture},code=sm_${architecture})
    endif()
  endforeach()
  set(${out} ${flags} PARENT_SCOPE)
endfunction()

# Compiles a line of C++20, once per nvcc and compiler. Sets `problem` to an error text, which is empty on success.
function(farandole_try_nvcc nvcc problem)
  if(FARANDOLE_TRIED_NVCC STREQUAL "${nvcc} ${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_VERSION}")
    set(${problem} "" PARENT_SCOPE)
    return()
  endif()
  set(source ${PROJECT_BINARY_DIR}/CMakeFiles/farandole_try_nvcc.cu)
  file(WRITE ${source} "#include <bit>\n__global__ void trial(unsigned* out) { *out = std::bit_cast<unsigned>(1.0F); }\n")
  farandole_gencode_flags(${nvcc} gencode)
  execute_process(COMMAND ${nvcc} ${farandole_nvcc_flags} ${gencode} --fatbin -o ${source}.fatbin ${source}
                  RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(failed)
    set(${problem} "${nvcc} cannot compile C++20 for these GPUs:\n${output}" PARENT_SCOPE)
    return()
  endif()
  set(FARANDOLE_TRIED_NVCC "${nvcc} ${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_VERSION}" CACHE INTERNAL "")
  set(${problem} "" PARENT_SCOPE)
endfunction()

if(NOT FARANDOLE_WITH_CUDA STREQUAL OFF)
  set(FARANDOLE_HAVE_CUDA ON)
  find_program(FARANDOLE_NVCC nvcc DOC "nvcc, of CUDA 12 or newer" PATH_SUFFIXES bin
               HINTS ${CUDAToolkit_ROOT} ENV CUDAToolkit_ROOT ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda)
  if(FARANDOLE_NVCC)
    farandole_try_nvcc(${FARANDOLE_NVCC} FARANDOLE_NO_KERNELS)
  else()
    set(FARANDOLE_NO_KERNELS "nvcc was not found")
  endif()
  if(NOT FARANDOLE_NO_KERNELS)
    set(FARANDOLE_HAVE_KERNELS ON)
  elseif(FARANDOLE_WITH_CUDA STREQUAL ON)
    message(FATAL_ERROR "FARANDOLE_WITH_CUDA=ON, but there can be no kernels for GPUs: ${FARANDOLE_NO_KERNELS}. Install nvcc of "
                        "CUDA 12 or newer (NVIDIA's package cuda-nvcc-13-0, or with pip: nvidia-cuda-nvcc nvidia-nvvm "
                        "nvidia-cuda-crt nvidia-cuda-runtime), and name it: -DFARANDOLE_NVCC=/path/to/nvcc or "
                        "-DCUDAToolkit_ROOT=/path/to/cuda. With AUTO the plug-in is built without kernels.")
  endif()
  if(FARANDOLE_CUDA12_NVCC AND NOT EXISTS ${FARANDOLE_CUDA12_NVCC})
    message(FATAL_ERROR "FARANDOLE_CUDA12_NVCC=${FARANDOLE_CUDA12_NVCC}, but there is no such file.")
  endif()
endif()

# Compiles `source` for all GPUs to `output`. Writes nvcc's report on each kernel (registers, spills) to `output`.log.
function(farandole_add_fatbin output nvcc source)
  cmake_parse_arguments(arg "" "" "INCLUDE_DIRECTORIES" ${ARGN})
  list(TRANSFORM arg_INCLUDE_DIRECTORIES PREPEND -I)
  farandole_gencode_flags(${nvcc} gencode)
  set(command ${nvcc} ${farandole_nvcc_flags} ${gencode} -Xptxas -v -Xfatbin -compress-all ${arg_INCLUDE_DIRECTORIES}
              -MD -MF ${output}.d --fatbin -o ${output} ${source})
  list(JOIN command "\" \"" command)
  file(CONFIGURE OUTPUT ${output}.cmake @ONLY CONTENT [[
execute_process(COMMAND "@command@" RESULT_VARIABLE failed OUTPUT_FILE "@output@.log" ERROR_FILE "@output@.log")
if(failed)
  file(READ "@output@.log" log)
  message(FATAL_ERROR "${log}")
endif()
]])
  add_custom_command(OUTPUT ${output} BYPRODUCTS ${output}.log COMMAND ${CMAKE_COMMAND} -P ${output}.cmake
                     DEPENDS ${source} ${output}.cmake DEPFILE ${output}.d COMMENT "Compiling kernels for GPUs" VERBATIM)
endfunction()
