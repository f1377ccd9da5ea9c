# SPDX-License-Identifier: Apache-2.0
# Functions that declare tests.
include_guard()
include(GoogleTest)

# Factor for the timeouts of tests with a sanitizer; equal to kSlowness in tests/support/sanitizers.h.
set(FARANDOLE_TEST_SLOWNESS 1)
if(FARANDOLE_SANITIZE)
  set(FARANDOLE_TEST_SLOWNESS 6)
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} PROPERTY TEST_INCLUDE_FILES ${PROJECT_SOURCE_DIR}/cmake/SanitizerEnvironment.cmake)
endif()

# Environment that runs the plug-in for CUDA on the double of tests/support/host_device.
set(FARANDOLE_ON_DOUBLE FARANDOLE_CUDA_LIBRARY=$<TARGET_FILE:fake_cuda> FARANDOLE_NCCL_LIBRARY=$<TARGET_FILE:fake_nccl>
                        $<$<TARGET_EXISTS:fake_cublas>:FARANDOLE_CUBLAS_LIBRARY=$<TARGET_FILE:fake_cublas>>
                        $<$<TARGET_EXISTS:fake_cudnn>:FARANDOLE_CUDNN_LIBRARY=$<TARGET_FILE:fake_cudnn>>)
if(NOT FARANDOLE_HAVE_KERNELS)
  # The plug-in of a build without nvcc refuses every device. The test plug-in has placeholder bytes instead of kernels.
  list(APPEND FARANDOLE_ON_DOUBLE FARANDOLE_PLUGIN_DIR=$<TARGET_FILE_DIR:farandole_cuda_test_plugin>)
endif()

# Adds a GoogleTest program. LABEL: unit, conformance, ops, …. TIMEOUT: in seconds, for the whole program. INTERNAL:
# links the static library, whose hidden functions the program tests, instead of the shared one. Such a program cannot
# load plug-ins.
function(farandole_add_test target)
  cmake_parse_arguments(arg "INTERNAL" "LABEL;TIMEOUT" "SOURCES;LIBRARIES;ENVIRONMENT" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE farandole_test_support ${arg_LIBRARIES}
                                          $<IF:$<BOOL:${arg_INTERNAL}>,farandole_internals,farandole>)
  farandole_configure_target(${target})
  # Tests compile in half the time with -O1. The tested library is fully optimised.
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  add_test(NAME ${target} COMMAND ${target})
  math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * ${FARANDOLE_TEST_SLOWNESS}")
  set_tests_properties(${target} PROPERTIES LABELS "${arg_LABEL}" TIMEOUT ${arg_TIMEOUT} ENVIRONMENT "${arg_ENVIRONMENT}")
endfunction()

# Labels tests of the calling directory as quick: `tests/run.sh` without arguments runs them besides the tests with the
# label unit. Name one or two of each kind. Ignores tests that do not exist, such as those of an MPI that is missing.
function(farandole_in_quick_runs)
  foreach(test ${ARGN})
    if(TEST ${test})
      set_property(TEST ${test} APPEND PROPERTY LABELS quick)
    endif()
  endforeach()
endfunction()

# Sets `out` to the command, as a list, that launches `processes` processes with an MPI.
function(farandole_mpi_command out flavour processes)
  set(${out} ${FARANDOLE_MPI_${flavour}_LAUNCHER} -n ${processes} ${FARANDOLE_MPI_${flavour}_LAUNCH_FLAGS} PARENT_SCOPE)
endfunction()

# Adds one test per MPI, or per MPI in FLAVOURS, and number of processes: <name>.<flavour>.<processes>
function(farandole_add_mpi_test name)
  cmake_parse_arguments(arg "" "TARGET;TIMEOUT" "PROCESSES;ARGUMENTS;ENVIRONMENT;LABELS;FLAVOURS" ${ARGN})
  if(NOT arg_FLAVOURS)
    set(arg_FLAVOURS ${FARANDOLE_MPI_FLAVOURS})
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS mpi)
  endif()
  foreach(flavour ${arg_FLAVOURS})
    if(NOT FARANDOLE_MPI_${flavour}_LAUNCHER)
      continue()
    endif()
    foreach(processes ${arg_PROCESSES})
      farandole_mpi_command(launcher ${flavour} ${processes})
      set(test ${name}.${flavour}.${processes})
      add_test(NAME ${test} COMMAND ${launcher} $<TARGET_FILE:${arg_TARGET}> ${arg_ARGUMENTS})
      set_tests_properties(${test} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} PROCESSORS 2
                           ENVIRONMENT "${arg_ENVIRONMENT}")
    endforeach()
  endforeach()
endfunction()

# Adds one test per MPI, or per MPI in FLAVOURS, on simulated hosts: <name>.<flavour>.hosts_<ranks of each host, joined
# by _>
function(farandole_add_hosts_test name)
  cmake_parse_arguments(arg "" "TIMEOUT;LABEL" "RANKS;COMMAND;ENVIRONMENT;FLAVOURS" ${ARGN})
  if(NOT arg_FLAVOURS)
    set(arg_FLAVOURS ${FARANDOLE_MPI_FLAVOURS})
  endif()
  if(NOT arg_LABEL)
    set(arg_LABEL mpi)
  endif()
  foreach(flavour ${arg_FLAVOURS})
    set(command ${FARANDOLE_MPI_${flavour}_LAUNCHER})
    set(host 0)
    foreach(ranks ${arg_RANKS})
      if(host GREATER 0)
        list(APPEND command :)
      endif()
      list(APPEND command -n ${ranks} ${FARANDOLE_MPI_${flavour}_LAUNCH_FLAGS} env FARANDOLE_HOST_ID=host${host} NCCL_HOSTID=host${host}
                          ${arg_COMMAND})
      math(EXPR host "${host} + 1")
    endforeach()
    list(JOIN arg_RANKS "_" shape)
    set(test ${name}.${flavour}.hosts_${shape})
    add_test(NAME ${test} COMMAND ${command})
    set_tests_properties(${test} PROPERTIES LABELS "${arg_LABEL}" TIMEOUT ${arg_TIMEOUT} PROCESSORS 2 SKIP_RETURN_CODE 77
                         ENVIRONMENT "${arg_ENVIRONMENT}")
  endforeach()
endfunction()
