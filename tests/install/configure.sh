#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: configure.sh SOURCE COMPILER [--build]
# Checks that the build keeps options that packagers and parent projects set, and that an impossible option is an error that says
# what to do. Only configures; with --build also builds and runs a program of a parent project.
set -euo pipefail
source=$1 compiler=$2 build=${3-}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
small=(-G Ninja "-DCMAKE_CXX_COMPILER=$compiler" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DFARANDOLE_BUILD_TESTS=OFF
       -DFARANDOLE_BUILD_EXAMPLES=OFF -DFARANDOLE_WITH_MPI=OFF -DFARANDOLE_WITH_PYTHON=OFF)

fail() {
  echo "FAIL: $*"
  cat "$work/log" 2>/dev/null
  exit 1
}

# configure NAME OPTIONS…
configure() {
  local name=$1
  shift
  cmake -S "$source" -B "$work/$name" "${small[@]}" "$@" >"$work/log" 2>&1
}

# refused TEXT OPTIONS…: the output has TEXT, whatever the width of its lines
refused() {
  local text=$1
  shift
  rm -rf "$work/refused"
  if configure refused "$@"; then fail "configured with $*"; fi
  grep -qF -- "$text" <<<"$(tr -s ' \n' '  ' <"$work/log")" || fail "no '$text' with $*"
}

refused "BUILD_SHARED_LIBS=OFF, but Farandole is a shared library only" -DBUILD_SHARED_LIBS=OFF
refused "CMAKE_CXX_STANDARD is 17, but Farandole needs C++20 or newer" -DCMAKE_CXX_STANDARD=17
refused "FARANDOLE_BUILD_TRAINER is 'YES'; it must be AUTO, ON or OFF" -DFARANDOLE_BUILD_TRAINER=YES
refused "apt-get install libdnnl-dev" -DFARANDOLE_BUILD_TRAINER=ON -DCMAKE_DISABLE_FIND_PACKAGE_dnnl=ON
refused "FARANDOLE_BUILD_TRAINER=ON, but CMake does not find: Eigen >= 3.4, oneDNN >= 2.5" \
  -DFARANDOLE_BUILD_TRAINER=ON -DCMAKE_DISABLE_FIND_PACKAGE_dnnl=ON -DCMAKE_DISABLE_FIND_PACKAGE_Eigen3=ON
refused "apt-get install libfmt-dev libspdlog-dev (or scripts/setup.sh" \
  -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON -DCMAKE_DISABLE_FIND_PACKAGE_spdlog=ON
[ "$(grep -n 'apt-get install' "$work/log" | cut -d: -f1)" -lt "$(grep -m 1 -n 'CMake Error' "$work/log" | cut -d: -f1)" ] ||
  fail "CMake's words come before ours"

refused "FARANDOLE_MPI_mpich_WRAPPER is '/nowhere/mpicxx', but that is no compiler wrapper" \
  -DFARANDOLE_WITH_MPI=AUTO -DFARANDOLE_MPI_mpich_WRAPPER=/nowhere/mpicxx
mkdir "$work/gtest"
echo 'add_library(GTest::gtest INTERFACE IMPORTED)' >"$work/gtest/GTestConfig.cmake"
refused "apt-get install libgtest-dev libgmock-dev" -DFARANDOLE_BUILD_TESTS=ON "-DGTest_DIR=$work/gtest"

configure without_trainer -DCMAKE_DISABLE_FIND_PACKAGE_dnnl=ON || fail "AUTO insists on the trainer"
grep -q 'trainer .*not found: oneDNN' "$work/log" || fail "nothing says why there is no trainer"

refused "there can be no kernels for GPUs: nvcc was not found. Install nvcc" -DFARANDOLE_WITH_CUDA=ON -DFARANDOLE_NVCC=
refused "kernels for GPUs: $(type -P false) cannot compile C++20" -DFARANDOLE_WITH_CUDA=ON "-DFARANDOLE_NVCC=$(type -P false)"
configure without_nvcc -DFARANDOLE_NVCC= || fail "AUTO insists on nvcc"
grep -q 'CUDA .*no kernels for GPUs: nvcc was not found' "$work/log" || fail "nothing says why there are no kernels for GPUs"
refused "there is no pmix.h in /nowhere" -DFARANDOLE_WITH_PMIX=ON -DFARANDOLE_PMIX_HEADERS=/nowhere
configure without_pmix -DFARANDOLE_PMIX_HEADERS=/nowhere || fail "AUTO insists on PMIx"
grep -q 'PMIx .*there is no pmix.h in /nowhere' "$work/log" || fail "nothing says why there is no PMIx"
configure without_cuda -DFARANDOLE_WITH_CUDA=OFF || fail "not configured without CUDA"
! grep -q 'kernels_fatbin' "$work/without_cuda/compile_commands.json" || fail "FARANDOLE_WITH_CUDA=OFF builds the plug-in for CUDA"

configure packager -DCMAKE_BUILD_TYPE=Release '-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DMARK' -DCMAKE_CXX_STANDARD=23 \
  -DCMAKE_INSTALL_RPATH=/opt/elsewhere -DFARANDOLE_WITH_MPI=AUTO || fail "not configured"
commands=$work/packager/compile_commands.json
grep -q -- '-O1 -DMARK' "$commands" || fail "the packager's flags are lost"
! grep -q -- '-O3' "$commands" || fail "flags beside the packager's"
grep -qE -- '-std=(c\+\+23|c\+\+2b)' "$commands" || fail "the packager's standard is lost"
rpaths=$(grep -rh NEW_RPATH "$work/packager" --include=cmake_install.cmake | tr -d ' )' | sort -u)
[ "$rpaths" = 'NEW_RPATH"/opt/elsewhere"' ] || fail "the packager's RPATH is not the only one: $rpaths"

# A project that contains Farandole, and has a fmt of its own.
mkdir "$work/parent"
cat >"$work/parent/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(parent LANGUAGES CXX)
include(FetchContent)
FetchContent_Declare(farandole SOURCE_DIR "$source")
add_library(own_fmt INTERFACE)
add_library(fmt::fmt ALIAS own_fmt)
target_compile_definitions(own_fmt INTERFACE OWN_FMT)
FetchContent_MakeAvailable(farandole)
file(WRITE "\${CMAKE_BINARY_DIR}/main.cpp" "int main() {}")
add_executable(program "\${CMAKE_BINARY_DIR}/main.cpp")
target_link_libraries(program PRIVATE farandole::farandole)
END
cmake -S "$work/parent" -B "$work/parent/build" -G Ninja "-DCMAKE_CXX_COMPILER=$compiler" -DBUILD_SHARED_LIBS=OFF \
  -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DFARANDOLE_WITH_MPI=OFF >"$work/log" 2>&1 || fail "a parent cannot contain Farandole"
grep -q 'BUILD_SHARED_LIBS is OFF for parent' "$work/log" || fail "BUILD_SHARED_LIBS=OFF is ignored in silence"
grep -qE '^CMAKE_BUILD_TYPE:STRING=$' "$work/parent/build/CMakeCache.txt" || fail "the parent's build type is changed"
grep -q OWN_FMT "$work/parent/build/compile_commands.json" || fail "the parent's fmt is not used"
! grep -q 'farandole-config' "$work/parent/build/_deps/farandole-build/cmake_install.cmake" ||
  fail "the parent installs Farandole"
[ ! -e "$work/parent/build/python" ] && [ ! -e "$work/parent/build/lib" ] || fail "Farandole writes into the parent's tree"
if [ "$build" = --build ]; then
  # With the fmt of the system this time, which is compiled.
  sed -i '/own_fmt/d' "$work/parent/CMakeLists.txt"
  cp "$source/tests/install/consumer/main.cpp" "$work/parent"
  sed -i 's|"${CMAKE_BINARY_DIR}/main.cpp")$|main.cpp)|' "$work/parent/CMakeLists.txt"
  cmake -S "$work/parent" -B "$work/built" -G Ninja "-DCMAKE_CXX_COMPILER=$compiler" -DFARANDOLE_WITH_MPI=OFF \
    -DFARANDOLE_BUILD_TRAINER=OFF >"$work/log" 2>&1 || fail "the parent is not configured"
  cmake --build "$work/built" -j 2 >"$work/log" 2>&1 || fail "the parent is not built"
  "$work/built/program" || fail "the parent's program"
  cmake --install "$work/built" --prefix "$work/installed" >"$work/log" 2>&1 || fail "the parent is not installed"
  [ -z "$(find "$work/installed" -name '*farandole*' 2>/dev/null)" ] || fail "the parent installs Farandole"
fi
echo "options are respected or refused"
