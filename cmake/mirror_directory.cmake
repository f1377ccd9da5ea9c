# SPDX-License-Identifier: Apache-2.0
# cmake -DFROM=DIRECTORY -DTO=DIRECTORY [-DKEEP=NAME,…] -P mirror_directory.cmake
#
# Copies changed files from FROM to TO, and deletes files of TO that FROM lacks, so that a renamed source does not
# remain under its old name. KEEP: directories, relative to TO, that stay unchanged because other rules write them.
# Python's __pycache__ is neither copied nor deleted.
cmake_policy(VERSION 3.25)
string(REPLACE "," ";" kept "${KEEP}")

# files_of(OUT DIRECTORY): sets OUT to the files below DIRECTORY, relative to DIRECTORY.
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
