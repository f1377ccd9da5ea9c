# SPDX-License-Identifier: Apache-2.0
# The examples as a project of their own, built against an installed Farandole. docs/gpu.md has the programs for GPUs.
find_package(farandole 0.1 REQUIRED)
find_package(Eigen3 3.4 QUIET NO_MODULE)
find_package(MPI QUIET COMPONENTS CXX)

add_executable(allreduce allreduce.cpp)
target_link_libraries(allreduce PRIVATE farandole::farandole)

if(Eigen3_FOUND)
  add_executable(own_loop own_loop.cpp)
  target_link_libraries(own_loop PRIVATE farandole::farandole Eigen3::Eigen)
else()
  message(STATUS "own_loop is left out: it needs Eigen >= 3.4")
endif()

if(TARGET farandole::trainer)
  foreach(example char_gpt custom_model image_folders predict regression sequence_classifier stream_training)
    add_executable(${example} ${example}.cpp)
    target_link_libraries(${example} PRIVATE farandole::trainer)
  endforeach()
else()
  message(STATUS "the examples of the trainer are left out: this Farandole was installed without it")
endif()

if(MPI_CXX_FOUND)
  add_executable(join_mpi join_mpi.cpp)
  target_link_libraries(join_mpi PRIVATE farandole::farandole MPI::MPI_CXX)
else()
  message(STATUS "join_mpi is left out: it needs an MPI")
endif()
