# SPDX-License-Identifier: Apache-2.0
# Makes a header with the revision of the library's sources: a digest of their names and contents, so that it changes
# with everything that could make two builds misunderstand each other, and with nothing else (it needs no git).
#   cmake -DROOT=… -DSOURCES_FILE=… -DOUTPUT=… -P FarandoleRevision.cmake
file(STRINGS ${SOURCES_FILE} sources)
set(digests "")
foreach(source ${sources})
  file(SHA256 ${ROOT}/${source} digest)
  string(APPEND digests "${source} ${digest}\n")
endforeach()
string(SHA256 revision "${digests}")
string(SUBSTRING ${revision} 0 12 revision)
file(WRITE ${OUTPUT} "// Made by cmake/FarandoleRevision.cmake.\n#define FARANDOLE_REVISION \"${revision}\"\n")
