#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the packages of Debian and Ubuntu that the build needs and the system lacks.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/setup.sh [--dev] [--python DIR [--tensorflow VERSION] [--torch]] [--print] [--os-release FILE]

Installs what is missing on Debian and Ubuntu, with sudo when not root. Says so when nothing is missing.
The data set, a second MPI, PMIx, GoogleTest, ccache and, with --dev, Slurm are left out where they cannot be had. Where
the system's CMake or g++ is too old, as on Ubuntu 22.04, CMake comes by pip, into DIR or build/tools, and g++-12 is
installed; the last line says how to use them.
On another system it prints what is needed and fails.

  --dev              also what checks of the code and the two-host test need
  --python DIR       also a virtual environment in DIR with what the Python tests need: numpy, and TensorFlow with
                     TensorBoard and tf-keras if they can be had; the tests of what is not there are skipped
  --tensorflow VERSION
                     this version of TensorFlow, such as 2.16.2, in an environment that has none yet
  --torch            also torch in that environment, for the tests of the torch backend and of the trainer: the build for
                     CPUs, or, where PyTorch's own index cannot be reached, the default one without the GPU packages that
                     it starts without: 2.1 GB with a CUDA toolkit on the machine, otherwise 4.3 GB
  --print            print the packages and install nothing
  --os-release FILE  the description of the system, /etc/os-release if not given
  --help             this text
TEXT
}

say() { echo "setup.sh: $*" >&2; }
fail() { say "$*"; exit 1; }
misuse() { say "$*"; exit 2; }

scripts=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=scripts/tools.sh
source "$scripts/tools.sh"
# shellcheck source=scripts/python_environment.sh
source "$scripts/python_environment.sh"

# make and ocl-icd-opencl-dev are listed because other packages only recommend them. CMake uses make for a user's
# program. The CMake package of libdnnl-dev needs ocl-icd-opencl-dev.
readonly build_packages=(
  g++ cmake make ninja-build
  libeigen3-dev libdnnl-dev ocl-icd-opencl-dev zlib1g-dev libpng-dev libjpeg-dev
  libfmt-dev libspdlog-dev nlohmann-json3-dev libsodium-dev libboost-program-options-dev
)
readonly python_packages=(python3 python3-venv)
readonly dev_packages=(clang-format-14 clang-tidy-14 iproute2 iptables openssh-client openssh-server pkg-config)
# Packages that the build can do without, by group. At least one MPI is needed.
declare -rA optional_packages=(
  [openmpi]='openmpi-bin libopenmpi-dev'
  [mpich]='mpich libmpich-dev'
  [pmix]='libpmix-dev'
  [data]='dataset-fashion-mnist'
  [tests]='libgtest-dev libgmock-dev'
  [ccache]='ccache'
  [slurm]='slurmctld slurmd slurm-client munge'
)
groups=(openmpi mpich pmix data tests ccache)
declare -rA loss=(
  [openmpi]='no plug-in for Open MPI is built, and its tests are left out'
  [mpich]='no plug-in for MPICH is built, and its tests are left out'
  [pmix]='programs without MPI do not join the jobs of srun --mpi=pmix'
  [data]='farandole-train and the examples need --data-dir, and the tests that need this data set are skipped'
  [tests]='build with -DFARANDOLE_BUILD_TESTS=OFF'
  [ccache]='what was compiled before is compiled again'
  [slurm]='the test of Slurm is skipped'
)
readonly apt_install=(apt-get install -y -q --no-install-recommends)

wanted=("${build_packages[@]}")
print_only=no
python_dir=
tensorflow_version=
with_torch=no
os_release=/etc/os-release
while [ $# -gt 0 ]; do
  case $1 in
    --python | --tensorflow | --os-release) [ -n "${2-}" ] || misuse "$1 needs a value; --help says which" ;;
  esac
  case $1 in
    --dev) wanted+=("${dev_packages[@]}"); groups+=(slurm) ;;
    --python) python_dir=$2; wanted+=("${python_packages[@]}"); shift ;;
    --tensorflow) tensorflow_version=$2; shift ;;
    --torch) with_torch=yes ;;
    --print) print_only=yes ;;
    --os-release) os_release=$2; shift ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; misuse "there is no option $1" ;;
  esac
  shift
done
[ -z "$tensorflow_version" ] || [ -n "$python_dir" ] ||
  misuse '--tensorflow needs --python DIR, the environment that TensorFlow is installed in'
[ $with_torch = no ] || [ -n "$python_dir" ] ||
  misuse '--torch needs --python DIR, the environment that torch is installed in'
optional_names=()
for group in "${groups[@]}"; do
  read -ra names <<<"${optional_packages[$group]}"
  optional_names+=("${names[@]}")
done
tensorflow_needed='tensorflow-cpu>=2.16,<2.22'
[ -z "$tensorflow_version" ] || tensorflow_needed="tensorflow-cpu==$tensorflow_version"

# ---- Needed and missing packages

# True on Debian, Ubuntu, and systems whose os-release names one of them in ID_LIKE.
is_debian_like() {
  [ -r "$os_release" ] || return 1
  # shellcheck disable=SC1090  # its place is an argument
  (. "$os_release" && [[ " ${ID-} ${ID_LIKE-} " =~ \ (debian|ubuntu)\  ]])
}

print_needs() {
  local debian="On Debian these are: ${wanted[*]} ${optional_names[*]}"
  [ $print_only = no ] || debian="The packages that are printed have Debian's names."
  cat >&2 <<TEXT
setup.sh knows the packages of Debian and Ubuntu only. Please install by your system's means:
  g++ >= $gxx_needed or clang >= $clang_needed, cmake >= $cmake_needed, ninja; ccache if you like
  Open MPI or MPICH, or both, with their compiler wrappers
  Eigen >= 3.4, oneDNN >= 2.5, zlib, libpng >= 1.6, libjpeg (of libjpeg-turbo)
  PMIx with its header, if you like
  fmt, spdlog, nlohmann-json >= 3, libsodium, Boost.Program_options >= 1.74
  GoogleTest with GoogleMock
  Fashion-MNIST: its four IDX files in one directory, named to farandole-train by --data-dir
  for the Python tests: Python >= 3.9 with numpy and, if you like, TensorFlow 2.16 to 2.21
  to check the code: clang-format 14, clang-tidy 14, iproute2, iptables, OpenSSH, pkg-config; Slurm and munge if you like
$debian
Then set SKIP_SETUP=1, and the other scripts leave this one out.
TEXT
}

# All packages that this script may install.
read -ra names_of_all <<<"${wanted[*]} ${optional_names[*]} $newer_compiler ${python_packages[*]}"

# The state of each package that dpkg knows.
declare -A state=()
read_states() {
  local package value
  while read -r package value; do
    state[$package]=$value
  done < <(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${names_of_all[@]}" 2>/dev/null)
}

missing_among() {
  local package
  for package in "$@"; do
    [ "${state[$package]-}" = installed ] || echo "$package"
  done
}

# The version of each package that apt would install. Packages that apt cannot install have no entry.
declare -A offered=()
read_offers() {
  local package version
  offered=()
  while read -r package version; do
    offered[$package]=${version#*:}
  done < <(LC_ALL=C apt-cache policy "${names_of_all[@]}" 2>/dev/null |
    awk '/^[^ ]/ { name = substr($1, 1, length($1) - 1) } $1 == "Candidate:" && $2 != "(none)" { print name, $2 }')
}

not_offered() {
  local package
  for package in "$@"; do
    [ -n "${offered[$package]-}" ] || echo "$package"
  done
}

have_lists() {
  LC_ALL=C apt-cache policy 2>/dev/null | grep ' Packages$' >/dev/null
}

# offers_less PACKAGE NEEDED: true if apt offers PACKAGE in a version older than NEEDED.
offers_less() {
  [ -n "${offered[$1]-}" ] && ! is_at_least "$2" "${offered[$1]}"
}

# Adds a newer compiler to `wanted`, and the packages to install a newer CMake, if the system's, or those that apt would
# install, are too old.
want_newer_tools() {
  if needs_newer_compiler && { command -v c++ >/dev/null || offers_less g++ "$gxx_needed"; }; then
    wanted+=("$newer_compiler")
  fi
  # pip then installs CMake.
  if ! is_good_cmake cmake && { command -v cmake >/dev/null || offers_less cmake "$cmake_needed"; }; then
    wanted+=("${python_packages[@]}")
  fi
  mapfile -t wanted < <(printf '%s\n' "${wanted[@]}" | awk '!seen[$0]++')
}

# Sets `missing` to the needed packages that are missing, and `spare` to the missing packages of each optional group.
find_missing() {
  local group names first=openmpi
  mapfile -t missing < <(missing_among "${wanted[@]}")
  declare -gA spare=()
  for group in "${groups[@]}"; do
    read -ra names <<<"${optional_packages[$group]}"
    mapfile -t names < <(missing_among "${names[@]}")
    [ ${#names[@]} = 0 ] || spare[$group]=${names[*]}
  done
  # One MPI is needed, unless mpicxx of an MPI from elsewhere is on PATH.
  if [ -n "${spare[openmpi]-}" ] && [ -n "${spare[mpich]-}" ] && ! command -v mpicxx >/dev/null; then
    if ! can_have openmpi && can_have mpich; then first=mpich; fi
    read -ra names <<<"${spare[$first]}"
    missing+=("${names[@]}")
    unset "spare[$first]"
  fi
}

# The missing optional packages, by groups.
spare_names() {
  local group
  for group in "${groups[@]}"; do
    [ -z "${spare[$group]-}" ] || printf ' %s' "${spare[$group]}"
  done
}

# True if apt can install all missing packages of an optional group.
can_have() {
  local names
  read -ra names <<<"${spare[$1]-}"
  [ -z "$(not_offered "${names[@]}")" ]
}

# ---- Packages

# Sets `root` to the words that run a command as root, or `no_root` to the reason why that is impossible. Asks for a
# password only on a terminal.
become_root() {
  root=() no_root=
  if [ "$(id -u)" = 0 ]; then return; fi
  if ! command -v sudo >/dev/null; then
    no_root='you are not root, and there is no sudo'
  elif [ -t 0 ]; then
    root=(sudo)
    say "sudo is asked to install ${missing[*]}$(spare_names)"
    sudo true || no_root='you are not root, and sudo refuses'
  else
    root=(sudo -n)
    sudo -n true 2>/dev/null || no_root='you are not root, sudo wants a password, and nobody is there to give it'
  fi
}

as_root() {
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive "$@" </dev/null
}

update_lists() {
  as_root apt-get update -q || say 'apt-get update failed; the lists of packages that are there are used'
  read_offers
  want_newer_tools
  find_missing
}

# leave_out GROUP REASON
leave_out() {
  say "left out: ${spare[$1]} ($2); ${loss[$1]}"
  unset "spare[$1]"
}

leave_out_unknown() {
  local group
  for group in "${groups[@]}"; do
    can_have "$group" || leave_out "$group" 'apt does not know it'
  done
}

# Without root: fails with the whole command to run. If only optional packages are missing, prints a line for each
# group.
do_without_root() {
  local update=$1 group
  if [ ${#missing[@]} -gt 0 ]; then
    say "packages are missing, and $no_root. As root, run:"
    echo "  $update${apt_install[*]} ${missing[*]}$(spare_names)" >&2
    exit 1
  fi
  for group in "${groups[@]}"; do
    [ -z "${spare[$group]-}" ] || leave_out "$group" "$no_root; as root: $update${apt_install[*]} ${spare[$group]}"
  done
}

install_missing() {
  local names unknown update=
  read_states
  want_newer_tools
  find_missing
  if [ $((${#missing[@]} + ${#spare[@]})) = 0 ]; then
    say "all packages are installed"
    return
  fi
  read_offers
  want_newer_tools
  find_missing
  become_root
  # apt's lists are out of date if they lack a needed package, or if there are none, as in images of containers.
  if [ -n "$(not_offered "${missing[@]}")" ] || ! have_lists; then
    update='apt-get update && '
    [ -n "$no_root" ] || update_lists
  fi
  unknown=$(not_offered "${missing[@]}")
  # Without root, and before the update that needs root, apt may still come to know the optional packages.
  if [ -z "$no_root" ] || [ -z "$update" ]; then leave_out_unknown; fi
  if [ -n "$no_root" ]; then do_without_root "$update"; return; fi
  [ -z "$unknown" ] || fail "apt does not know, even after apt-get update: ${unknown//$'\n'/ }"
  read -ra names <<<"${missing[*]}$(spare_names)"
  [ ${#names[@]} -gt 0 ] || return 0
  say "installing ${names[*]}"
  if as_root "${apt_install[@]}" "${names[@]}"; then return; fi
  # Lists that know a package may be out of date, too: the download fails if the package has moved.
  if [ -z "$update" ] && as_root apt-get update -q && as_root "${apt_install[@]}" "${names[@]}"; then return; fi
  fail 'apt-get has not installed all of this; its messages are above'
}

# ---- Tools that are newer than the system's

check_compiler() {
  if needs_newer_compiler && ! is_good_compiler "$newer_compiler"; then
    fail "g++ >= $gxx_needed or clang >= $clang_needed is needed, and c++ is $(c++ -dumpversion 2>/dev/null || echo none);" \
      "install one and set CXX to it"
  fi
}

# make_environment DIR
make_environment() {
  [ -x "$1/bin/python" ] || python3 -m venv "$1" || fail "no Python environment could be made in $1"
}

# Directory of CMake for PATH. Without --python it has links to CMake's programs only, because an environment's python3
# would hide the system's.
readonly cmake_dir=${python_dir:-$tools_dir}/bin
install_cmake() {
  local environment=${python_dir:-$tools_dir/environment} program
  if is_good_cmake cmake || is_good_cmake "$cmake_dir/cmake"; then return; fi
  say "installing CMake in $environment, as the system's is too old"
  make_environment "$environment"
  # CMake 3, because CMake 4 has dropped policies that CMake files of older libraries request.
  "$environment/bin/python" -m pip --disable-pip-version-check install -q "cmake>=$cmake_needed,<4" ||
    fail "cmake >= $cmake_needed is needed, and pip cannot install it in $environment"
  if [ -z "$python_dir" ]; then
    mkdir -p "$cmake_dir"
    for program in cmake ctest; do ln -sf "$environment/bin/$program" "$cmake_dir/$program"; done
  fi
  is_good_cmake "$cmake_dir/cmake" || fail "the CMake in $environment does not run; remove that directory and try again"
}

# Prints the variables to export before building by hand. The scripts of this repository set them themselves.
say_how_to_use_tools() {
  local exports=()
  is_good_cmake cmake || exports+=("PATH=\"$(cd "$cmake_dir" && pwd):\$PATH\"")
  ! needs_newer_compiler || exports+=("CXX=$newer_compiler")
  [ ${#exports[@]} = 0 ] || say "before you run cmake or pip by hand: export ${exports[*]}"
}

if [ $print_only = yes ]; then
  if is_debian_like; then
    read_offers
    want_newer_tools
  else
    print_needs
  fi
  names=("${wanted[@]}" "${optional_names[@]}")
  printf '%s\n' "${names[@]}"
  exit 0
fi
if ! is_debian_like; then
  print_needs
  exit 1
fi
install_missing
check_compiler
install_cmake
[ -z "$python_dir" ] || make_python_environment
[ $with_torch = no ] || install_torch
say_how_to_use_tools
