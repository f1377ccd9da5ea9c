# SPDX-License-Identifier: Apache-2.0
# cmake -DFROM=DIRECTORY -DTO=DIRECTORY [-DKEEP=NAME,…] -P mirror_directory.cmake
#
# Copies what changed in FROM to TO, and deletes the files of TO that FROM no longer has: a source that was renamed must not
# be found under its old name. The directories KEEP of TO, relative to TO, belong to others and stay as they are. Python's
# __pycache__ is neither copied nor deleted.
cmake_policy(VERSION 3.25)
string(REPLACE "," ";" kept "${KEEP}")

# files_of(OUT DIRECTORY): the files below it, relative to it.
function(files_of out directory)
  file(GLOB_RECURSE found RELATIVE ${directory} LIST_DIRECTORIES false ${directory}/*)
  list(FILTER found EXCLUDE REGEX "(^|/)__pycache__/")
  set(${out} ${found} PARENT_SCOPE)
endfunction()

files_of(sources ${FROM})
files_of(stale ${TO})
list(REMOVE_ITEM stale ${sources})
foreach(directory IN LISTS kept)
  list(FILTER stale EXCLUDE REGEX "^${directory}(/|$)")
endforeach()
foreach(file IN LISTS stale)
  file(REMOVE ${TO}/${file})
endforeach()
foreach(file IN LISTS sources)
  cmake_path(GET file PARENT_PATH directory)
  file(MAKE_DIRECTORY ${TO}/${directory})
  file(COPY_FILE ${FROM}/${file} ${TO}/${file} ONLY_IF_DIFFERENT)
endforeach()
