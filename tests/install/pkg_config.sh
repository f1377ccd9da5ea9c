#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: pkg_config.sh BUILD_DIRECTORY CONSUMER_SOURCE COMPILER [SANITIZERS]
# Builds programs with only the flags that pkg-config prints for an install tree that was moved. Also checks the flags for an
# installation with unusual directories.
set -euo pipefail
build=$1 source=$2 compiler=$3 sanitize=${4-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v pkg-config >/dev/null || { echo 'skipped: no pkg-config'; exit 77; }
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
fail() { echo "FAIL: $*"; exit 1; }

cmake --install "$build" --prefix "$work/first" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
mv "$work/first" "$work/prefix"
files=$(dirname "$(find "$work/prefix" -name farandole.pc)")
export PKG_CONFIG_PATH=$files
flags=(-std=c++20)
[ -z "$sanitize" ] || flags+=("-fsanitize=$sanitize")
# compiles PACKAGE SOURCE
compiles() {
  local said library_directory
  pkg-config --validate "$1"
  said=$(pkg-config --cflags --libs "$1")
  case $said in *"$work/first"*) fail "$1 names the place where it was installed first: $said" ;; esac
  # Only what the library's own headers need: what it is made of is its own affair.
  ! grep -qvE "^(-I$work|-L$work|-lfarandole(_trainer)?\$|\$)" <<<"${said// /$'\n'}" ||
    fail "$1 asks for more than Farandole: $said"
  library_directory=$(pkg-config --variable=libdir "$1")
  # shellcheck disable=SC2086  # a list of flags
  "$compiler" "${flags[@]}" "$source/$2" $said -Wl,-rpath,"$library_directory" -o "$work/program"
  "$work/program"
}
compiles farandole main.cpp
version=$(pkg-config --modversion farandole)
if [ -e "$files/farandole-trainer.pc" ]; then
  compiles farandole-trainer trainer_main.cpp
  grep -qx "Requires: farandole = $version" "$files/farandole-trainer.pc" ||
    fail 'the trainer asks for no library of its version'
fi
if [ -x "$work/prefix/bin/farandole-info" ]; then
  [ "$("$work/prefix/bin/farandole-info" --version)" = "farandole-info (Farandole) $version" ] ||
    fail "farandole.pc says $version"
  for file in share/man/man1/farandole-info.1 share/bash-completion/completions/farandole-info; do
    [ -s "$work/prefix/$file" ] || fail "$file is not installed"
  done
fi

# says FLAGS LIBDIR INCLUDEDIR: of an installation with these directories.
says() {
  local said
  rm -rf "$work/other"; mkdir -p "$work/other"
  cmake -DCMAKE_INSTALL_PREFIX=/usr/local -DCMAKE_INSTALL_LIBDIR="$2" -DCMAKE_INSTALL_INCLUDEDIR="$3" \
    -DDIRECTORY="$work/other/files" -P "$here/write_pkg_config.cmake"
  case $2 in /*) files=$work/other ;; *) files=$work/other/$2/pkgconfig ;; esac
  mkdir -p "$files" && mv "$work/other/files/farandole.pc" "$files"
  said=$(PKG_CONFIG_PATH=$files pkg-config --cflags --libs farandole)
  said=$(for flag in $said; do
    case $flag in -[IL]/*) echo "${flag:0:2}$(realpath -m "${flag:2}")" ;; *) echo "$flag" ;; esac
  done | paste -sd ' ')
  [ "$said" = "$1" ] || fail "for $2 and $3 pkg-config says '$said' (expected '$1')"
}
says "-I$work/other/include -L$work/other/lib -lfarandole" lib include
says "-I$work/other/include -L$work/other/lib/x86_64-linux-gnu -lfarandole" lib/x86_64-linux-gnu include
says "-I/made/dev/include -L/made/out/lib -lfarandole" /made/out/lib /made/dev/include
says "-I/made/dev/include -L$work/other/lib64 -lfarandole" lib64 /made/dev/include
says "-I/usr/local/include/own -L/made/out/lib -lfarandole" /made/out/lib include/own
echo 'pkg-config says what a program needs'
