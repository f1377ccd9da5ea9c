# SPDX-License-Identifier: Apache-2.0
# farandole-run for programs in C++. Installs the launcher's modules of the Python package in a private directory beside
# the library, and a program that imports them. The modules need neither numpy nor the rest of the package.
include_guard()

# A process that loads an instrumented library must itself be instrumented, and Python is not.
if(NOT FARANDOLE_BUILD_PROGRAMS OR FARANDOLE_SANITIZE)
  return()
endif()
set(farandole_run_files
    _built.py _engine.py _engine_interface.py _files.py _info.py _quiet.py errors.py run.py
    _horovod/__init__.py _horovod/environment.py _horovod/run_script.py
    launch/__init__.py launch/_checks.py launch/_commands.py launch/_config.py launch/_hosts.py launch/_launchers.py
    launch/_options.py launch/_pages.py)
set(farandole_run_place ${FARANDOLE_PLUGIN_DIRECTORY_NAME}/launch)  # beside the library
set(built ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/${farandole_run_place})
set(sources ${PROJECT_SOURCE_DIR}/bindings/python/farandole)

# The private package has an empty __init__.py. Its `lib` is a link to the installation's library directory.
file(WRITE ${PROJECT_BINARY_DIR}/farandole_run/__init__.py "# SPDX-License-Identifier: Apache-2.0\n")
file(MAKE_DIRECTORY ${built}/farandole)
file(CREATE_LINK ../../.. ${built}/farandole/lib SYMBOLIC)
file(CREATE_LINK ../../.. ${PROJECT_BINARY_DIR}/farandole_run/lib SYMBOLIC)
file(COPY ${PROJECT_BINARY_DIR}/farandole_run/__init__.py DESTINATION ${built}/farandole)
set(copies "")
foreach(file ${farandole_run_files})
  add_custom_command(OUTPUT ${built}/farandole/${file} DEPENDS ${sources}/${file}
                     COMMAND ${CMAKE_COMMAND} -E copy ${sources}/${file} ${built}/farandole/${file} VERBATIM)
  list(APPEND copies ${built}/farandole/${file})
endforeach()

# Writes farandole-run to `output`. The program will be in the directory `programs`, and its modules in `modules`.
function(farandole_write_run output programs modules)
  file(RELATIVE_PATH farandole_run_modules ${programs} ${modules})
  configure_file(${PROJECT_SOURCE_DIR}/bindings/python/farandole-run.in ${output} @ONLY
                 FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
endfunction()
set(program ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/farandole-run)
farandole_write_run(${program} ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${built})
farandole_write_run(${PROJECT_BINARY_DIR}/farandole_run/farandole-run ${CMAKE_INSTALL_FULL_BINDIR}
                    ${CMAKE_INSTALL_FULL_LIBDIR}/${farandole_run_place})

find_package(Python3 3.9 QUIET COMPONENTS Interpreter)
set(manual ${FARANDOLE_MANUAL_DIRECTORY}/farandole-run.1)
set(completion ${PROJECT_BINARY_DIR}/share/farandole-run.bash)
set(pages "")
if(FARANDOLE_PROGRAM_PAGES AND Python3_FOUND)
  set(pages ${manual} ${completion})
  add_custom_command(OUTPUT ${pages} DEPENDS ${copies} ${program} farandole
                     COMMAND Python3::Interpreter -IS ${program} --man-page > ${manual}
                     COMMAND Python3::Interpreter -IS ${program} --bash-completion > ${completion} VERBATIM)
endif()
add_custom_target(farandole_run ALL DEPENDS ${copies} ${pages})

if(NOT FARANDOLE_INSTALL)
  return()
endif()
install(PROGRAMS ${PROJECT_BINARY_DIR}/farandole_run/farandole-run DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
set(package ${CMAKE_INSTALL_LIBDIR}/${farandole_run_place}/farandole)
install(FILES ${PROJECT_BINARY_DIR}/farandole_run/__init__.py ${PROJECT_BINARY_DIR}/farandole_run/lib
        DESTINATION ${package} COMPONENT programs)
foreach(file ${farandole_run_files})
  cmake_path(GET file PARENT_PATH directory)
  install(FILES ${sources}/${file} DESTINATION ${package}/${directory} COMPONENT programs)
endforeach()
if(pages)
  install(FILES ${manual} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT programs)
  install(FILES ${completion} RENAME farandole-run DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
          COMPONENT programs)
endif()
