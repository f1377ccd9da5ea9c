# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the scripts that build: which CMake and which C++ compiler are new enough, and where they are if the
# system's own are not, as on Ubuntu 22.04.

readonly cmake_needed=3.25 gxx_needed=12 clang_needed=14
# The compiler that setup.sh installs beside one that is too old.
readonly newer_compiler=g++-12
tools_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build/tools
readonly tools_dir

# is_at_least NEEDED FOUND: MAJOR[.MINOR], and a text that begins with a version; where there is none it is not.
is_at_least() {
  [[ $1 =~ ^([0-9]+)(\.([0-9]+))?$ ]] || return 2
  local major=${BASH_REMATCH[1]} minor=${BASH_REMATCH[3]:-0}
  [[ $2 =~ ^([0-9]+)(\.([0-9]+))? ]] || return 1
  local found=$((10#${BASH_REMATCH[1]})) found_minor=$((10#${BASH_REMATCH[3]:-0}))
  ((found > major || (found == major && found_minor >= minor)))
}

is_good_cmake() {
  local version
  version=$("$1" --version 2>/dev/null) || return 1
  is_at_least "$cmake_needed" "${version#cmake version }"
}

is_good_compiler() {
  local needed=$gxx_needed
  [[ $("$1" --version 2>/dev/null) != *clang* ]] || needed=$clang_needed
  is_at_least "$needed" "$("$1" -dumpversion 2>/dev/null)"
}

# True if CMake would take a compiler that is too old, or none. What CXX names is the caller's choice.
needs_newer_compiler() {
  [ -z "${CXX-}" ] && ! is_good_compiler c++
}

# use_tools [ENVIRONMENT]: for all that this shell starts, what setup.sh has installed because the system's own is too
# old: the CMake of that Python environment, or of build/tools, and the compiler. The compiler's cache takes what another
# folder of this checkout, or another checkout, has compiled alike.
use_tools() {
  local directory
  CCACHE_BASEDIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
  export CCACHE_BASEDIR CCACHE_NOHASHDIR=1
  if ! is_good_cmake cmake; then
    for directory in ${1:+"$1/bin"} "$tools_dir/bin"; do
      if is_good_cmake "$directory/cmake"; then
        PATH=$(cd "$directory" && pwd):$PATH
        export PATH
        break
      fi
    done
  fi
  if needs_newer_compiler && is_good_compiler "$newer_compiler"; then export CXX=$newer_compiler; fi
}
