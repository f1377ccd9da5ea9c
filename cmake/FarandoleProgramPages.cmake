# SPDX-License-Identifier: Apache-2.0
# Manual pages and bash completion. Each program writes its own manual page, from the table with which it parses its
# options. One completion file serves all programs. It is installed once per program, under the name that bash looks
# for.
include_guard()

set(FARANDOLE_PROGRAM_PAGES ON)
if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
  set(FARANDOLE_PROGRAM_PAGES OFF)
  message(STATUS "No manual pages: the programs cannot run here to write them. "
                 "CMAKE_CROSSCOMPILING_EMULATOR would run them.")
endif()
set(FARANDOLE_MANUAL_DIRECTORY ${PROJECT_BINARY_DIR}/share/man/man1)
set(FARANDOLE_COMPLETION ${PROJECT_SOURCE_DIR}/collectives/tools/bash_completion.sh)
file(MAKE_DIRECTORY ${FARANDOLE_MANUAL_DIRECTORY})

function(farandole_document_program program)
  if(FARANDOLE_PROGRAM_PAGES)
    add_custom_command(TARGET ${program} POST_BUILD
      COMMAND ${program} --man-page > ${FARANDOLE_MANUAL_DIRECTORY}/${program}.1
      VERBATIM)
  endif()
endfunction()

# farandole_install_program_pages(COMPONENT PROGRAM…)
function(farandole_install_program_pages component)
  foreach(program ${ARGN})
    if(FARANDOLE_PROGRAM_PAGES)
      install(FILES ${FARANDOLE_MANUAL_DIRECTORY}/${program}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
              COMPONENT ${component})
    endif()
    install(FILES ${FARANDOLE_COMPLETION} RENAME ${program}
            DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT ${component})
  endforeach()
endfunction()
