# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the scripts that build. Decides whether CMake and the C++ compiler are new enough, and finds newer ones,
# which setup.sh has installed, if the system's are too old, as on Ubuntu 22.04.

readonly cmake_needed=3.25 gxx_needed=12 clang_needed=14
# The compiler that setup.sh installs if the system's compiler is too old.
readonly newer_compiler=g++-12
tools_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build/tools
readonly tools_dir

# is_at_least NEEDED FOUND: true if FOUND begins with a version of at least NEEDED. NEEDED has the form MAJOR[.MINOR].
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

# True if CMake would find no compiler, or one that is too old. False if CXX is set: the caller has chosen a compiler.
needs_newer_compiler() {
  [ -z "${CXX-}" ] && ! is_good_compiler c++
}

# use_tools [ENVIRONMENT]: sets PATH and CXX to the tools that setup.sh has installed, if the system's are too old:
# CMake of the Python environment ENVIRONMENT or of build/tools, and the compiler. Also sets ccache's variables, so that
# build directories and checkouts share compiled files.
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
