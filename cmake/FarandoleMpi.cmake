# SPDX-License-Identifier: Apache-2.0
# Finds Open MPI and MPICH. Both may be installed side by side, which find_package(MPI) cannot express.
#
# Sets FARANDOLE_MPI_FLAVOURS (a list of openmpi, mpich) and for each flavour
#   farandole_mpi_flavour::<flavour>       imported target with the headers and the C library of this MPI
#   FARANDOLE_MPI_<flavour>_WRAPPER        compiler wrapper from which the paths come
#   FARANDOLE_MPI_<flavour>_LAUNCHER       mpiexec of this MPI, or ...-NOTFOUND
#   FARANDOLE_MPI_<flavour>_LAUNCH_FLAGS   options for tests: more processes than cores, no binding
include_guard()

set(FARANDOLE_MPI_FLAVOURS "")
set(farandole_mpi_openmpi_macro OMPI_MAJOR_VERSION)
set(farandole_mpi_mpich_macro MPICH_VERSION)
set(farandole_mpi_openmpi_libraries mpi)
set(farandole_mpi_mpich_libraries mpich mpi)

# Sets the include and library directories that a wrapper passes to the compiler.
function(farandole_ask_mpi_wrapper wrapper include_directories library_directories)
  execute_process(COMMAND ${wrapper} -show OUTPUT_VARIABLE command_line ERROR_QUIET RESULT_VARIABLE status
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(includes "")
  set(libraries "")
  if(status EQUAL 0)
    separate_arguments(arguments UNIX_COMMAND "${command_line}")
    foreach(argument ${arguments})
      if(argument MATCHES "^-I(.+)$")
        list(APPEND includes ${CMAKE_MATCH_1})
      elseif(argument MATCHES "^-L(.+)$")
        list(APPEND libraries ${CMAKE_MATCH_1})
      endif()
    endforeach()
  endif()
  set(${include_directories} "${includes}" PARENT_SCOPE)
  set(${library_directories} "${libraries}" PARENT_SCOPE)
endfunction()

function(farandole_set_launch_flags flavour)
  set(flags "")
  if(flavour STREQUAL openmpi)
    set(flags --oversubscribe --bind-to none)
    execute_process(COMMAND id -u OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(user EQUAL 0)
      list(APPEND flags --allow-run-as-root)
    endif()
  endif()
  set(FARANDOLE_MPI_${flavour}_LAUNCH_FLAGS "${flags}" PARENT_SCOPE)
endfunction()

# Sets `found` to TRUE if the wrapper's mpi.h is of this flavour, and makes the target. A plain mpicxx may belong to
# either MPI.
function(farandole_try_mpi flavour wrapper found)
  set(${found} FALSE PARENT_SCOPE)
  farandole_ask_mpi_wrapper(${wrapper} include_directories library_directories)
  find_path(header_directory mpi.h HINTS ${include_directories} NO_CACHE)
  if(NOT header_directory)
    return()
  endif()
  file(STRINGS ${header_directory}/mpi.h marks REGEX "#[ \t]*define[ \t]+(${farandole_mpi_${flavour}_macro}|I_MPI_VERSION)[ \t]")
  if(NOT marks OR marks MATCHES "I_MPI_VERSION")
    return()
  endif()
  find_library(library NAMES ${farandole_mpi_${flavour}_libraries} HINTS ${library_directories} NO_CACHE NO_DEFAULT_PATH)
  if(NOT library AND NOT library_directories)
    find_library(library NAMES ${farandole_mpi_${flavour}_libraries} NO_CACHE)
  endif()
  if(NOT library)
    message(WARNING "${wrapper} is there, but no C library of its MPI in: ${library_directories}")
    return()
  endif()
  if(NOT include_directories)
    set(include_directories ${header_directory})
  endif()
  add_library(farandole_mpi_flavour::${flavour} INTERFACE IMPORTED GLOBAL)
  target_include_directories(farandole_mpi_flavour::${flavour} SYSTEM INTERFACE ${include_directories})
  target_link_libraries(farandole_mpi_flavour::${flavour} INTERFACE ${library})
  # The C++ bindings were removed from MPI; Farandole uses the C interface only.
  target_compile_definitions(farandole_mpi_flavour::${flavour} INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  set(${found} TRUE PARENT_SCOPE)
endfunction()

macro(farandole_find_mpi_flavour flavour)
  set(farandole_mpi_named "${FARANDOLE_MPI_${flavour}_WRAPPER}")
  foreach(candidate mpicxx.${flavour} mpic++.${flavour} mpicxx mpic++)
    find_program(FARANDOLE_MPI_${flavour}_WRAPPER ${candidate} DOC "Compiler wrapper of ${flavour}")
    if(FARANDOLE_MPI_${flavour}_WRAPPER)
      farandole_try_mpi(${flavour} ${FARANDOLE_MPI_${flavour}_WRAPPER} farandole_mpi_found)
      if(farandole_mpi_found)
        break()
      endif()
      if(farandole_mpi_named)
        message(FATAL_ERROR "FARANDOLE_MPI_${flavour}_WRAPPER is '${farandole_mpi_named}', but that is no compiler wrapper of "
                            "${flavour}, or its mpi.h and C library are missing. Name another, or leave it unset (in a build "
                            "directory that has it: -UFARANDOLE_MPI_${flavour}_WRAPPER).")
      endif()
      unset(FARANDOLE_MPI_${flavour}_WRAPPER CACHE)
    endif()
  endforeach()
  if(FARANDOLE_MPI_${flavour}_WRAPPER)
    list(APPEND FARANDOLE_MPI_FLAVOURS ${flavour})
    cmake_path(GET FARANDOLE_MPI_${flavour}_WRAPPER PARENT_PATH farandole_mpi_directory)
    find_program(FARANDOLE_MPI_${flavour}_LAUNCHER NAMES mpiexec.${flavour} mpirun.${flavour}
                 HINTS ${farandole_mpi_directory} DOC "Launcher of ${flavour}")
    # If the wrapper's name contains its MPI, the launcher's does, too, and a plain mpiexec may belong to another MPI.
    if(NOT FARANDOLE_MPI_${flavour}_WRAPPER MATCHES "\\.${flavour}$")
      find_program(FARANDOLE_MPI_${flavour}_LAUNCHER NAMES mpiexec mpirun PATHS ${farandole_mpi_directory} NO_DEFAULT_PATH)
    endif()
    farandole_set_launch_flags(${flavour})
  endif()
endmacro()

if(NOT FARANDOLE_WITH_MPI STREQUAL OFF)
  farandole_find_mpi_flavour(openmpi)
  farandole_find_mpi_flavour(mpich)
  if(FARANDOLE_WITH_MPI STREQUAL ON AND NOT FARANDOLE_MPI_FLAVOURS)
    message(FATAL_ERROR "FARANDOLE_WITH_MPI=ON, but neither Open MPI nor MPICH was found. Install one with its development "
                        "files (Debian and Ubuntu: libopenmpi-dev openmpi-bin, or libmpich-dev mpich), put its mpicxx on "
                        "PATH, or name it: -DFARANDOLE_MPI_openmpi_WRAPPER=/path/to/mpicxx.")
  endif()
endif()
