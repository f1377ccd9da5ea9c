# SPDX-License-Identifier: Apache-2.0
# The examples for GPUs. Each example is built twice. If there is a CUDA toolkit, the example is built with CUDA's
# runtime, as users build it. For tests, the example is built with the double of CUDA (tests/support/host_device), so
# that it runs on every machine.
set(FARANDOLE_HAVE_CUDART OFF)
if(FARANDOLE_HAVE_KERNELS)
  # The toolkit of the nvcc that compiles the kernels.
  if(NOT CUDAToolkit_ROOT)
    cmake_path(GET FARANDOLE_NVCC PARENT_PATH CUDAToolkit_ROOT)
    cmake_path(GET CUDAToolkit_ROOT PARENT_PATH CUDAToolkit_ROOT)
  endif()
  find_package(CUDAToolkit QUIET)
  if(TARGET CUDA::cudart_static)
    set(FARANDOLE_HAVE_CUDART ON)
  endif()
endif()
if(NOT FARANDOLE_HAVE_CUDART)
  message(STATUS "device_allreduce and own_loop_gpu (examples/cpp) are not built for GPUs: there is no CUDA toolkit with nvcc "
                 "and cudart")
endif()

# farandole_compile_for_gpus(OUT SOURCE.cu): sets OUT to the object file of SOURCE.cu; link it with CUDA::cudart_static.
function(farandole_compile_for_gpus out source)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${source}.o)
  farandole_gencode_flags(${FARANDOLE_NVCC} gencode)
  add_custom_command(OUTPUT ${object}
    COMMAND ${FARANDOLE_NVCC} ${farandole_nvcc_flags} ${gencode} -MD -MF ${object}.d -c -o ${object} ${CMAKE_CURRENT_SOURCE_DIR}/${source}
    DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source} DEPFILE ${object}.d COMMENT "Compiling ${source} for GPUs" VERBATIM)
  set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON)
  set(${out} ${object} PARENT_SCOPE)
endfunction()

# Adds a test that the program, without a device, prints the reason and ends with the status of a skipped test. Further
# arguments: variables for the double, passed to tests/device/no_device.sh.
function(farandole_add_no_device_test name)
  add_test(NAME example_${name}.no_device
           COMMAND ${PROJECT_SOURCE_DIR}/tests/device/no_device.sh $<TARGET_FILE:example_${name}> ${ARGN})
  set_tests_properties(example_${name}.no_device PROPERTIES LABELS "device;examples" TIMEOUT 120)
endfunction()

# farandole_add_gpu_example(NAME SOURCES… [KERNELS SOURCE.cu])
function(farandole_add_gpu_example name)
  cmake_parse_arguments(arg "" "KERNELS" "SOURCES" ${ARGN})
  if(FARANDOLE_HAVE_CUDART)
    set(objects "")
    if(arg_KERNELS)
      farandole_compile_for_gpus(objects ${arg_KERNELS})
    endif()
    farandole_add_example(${name} SOURCES ${arg_SOURCES} ${objects} LIBRARIES farandole::farandole CUDA::cudart_static)
    if(FARANDOLE_BUILD_TESTS)
      set_tests_properties(example_${name} PROPERTIES SKIP_RETURN_CODE 77)
      farandole_add_no_device_test(${name})
    endif()
  endif()
  if(NOT FARANDOLE_BUILD_TESTS)
    return()
  endif()
  set(on_double ${name}_on_double)
  farandole_add_example(${on_double} SOURCES ${arg_SOURCES} ${arg_KERNELS} LIBRARIES farandole::farandole fake_cudart)
  add_dependencies(example_${on_double} farandole_cuda farandole_cuda_test_plugin fake_nccl)
  set_tests_properties(example_${on_double} PROPERTIES LABELS "device;examples" ENVIRONMENT "${FARANDOLE_ON_DOUBLE}")
  foreach(processes 2 3)
    set(test example_${on_double}.local.${processes})
    add_test(NAME ${test}
             COMMAND ${PROJECT_SOURCE_DIR}/tests/support/local_job.sh -n ${processes} $<TARGET_FILE:example_${on_double}>)
    set_tests_properties(${test} PROPERTIES LABELS "device;examples" TIMEOUT 120 PROCESSORS 2 ENVIRONMENT "${FARANDOLE_ON_DOUBLE}")
  endforeach()
  farandole_add_mpi_test(example_${on_double} TARGET example_${on_double} LABELS device examples TIMEOUT 120 PROCESSES 2 3
                         ENVIRONMENT "${FARANDOLE_ON_DOUBLE}")
  farandole_add_no_device_test(${on_double} ${FARANDOLE_ON_DOUBLE})
endfunction()

farandole_add_gpu_example(device_allreduce SOURCES device_allreduce.cpp)
set_source_files_properties(own_loop_gpu_kernels.cu PROPERTIES LANGUAGE CXX)  # for the double
farandole_add_gpu_example(own_loop_gpu SOURCES own_loop_gpu.cpp KERNELS own_loop_gpu_kernels.cu)
