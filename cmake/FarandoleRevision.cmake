# SPDX-License-Identifier: Apache-2.0
# Writes a header with the revision of the library's sources: a digest of their names and contents. The revision changes
# with every change that could make two builds incompatible, and with nothing else. Needs no git.
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
