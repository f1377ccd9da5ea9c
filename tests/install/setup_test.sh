#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: setup_test.sh SOURCE
# Runs scripts/setup.sh, tests/run.sh and examples/fashion_mnist.sh on simulated systems. The state of a system is files
# in a temporary directory. PATH holds only fakes ("doubles": apt-get, dpkg-query, sudo, id, python3, cmake, …) and
# links to harmless tools such as sed.
set -u
source=$(cd "$1" && pwd)
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
# shellcheck disable=SC2086  # a list of names
unset CXX ${!FARANDOLE_*} SKIP_SETUP PRESET TENSORFLOW
checks=0 failures=0 name=

fail() {
  echo "FAIL: $name: $*"; sed 's/^/  /' out
  failures=$((failures + 1))
}
has() { checks=$((checks + 1)); grep -qE -- "$1" "${2-out}" || fail "no line of ${2-out} matches: $1"; }
has_no() { checks=$((checks + 1)); ! grep -qE -- "$1" "${2-out}" || fail "a line of ${2-out} matches: $1"; }
has_lines() { checks=$((checks + 1)); [ "$(grep -cE -- "$2" out)" = "$1" ] || fail "not $1 lines match: $2"; }
# ends STATUS COMMAND...: the output is in `out`, standard output alone in `stdout`, calls of apt-get in system/calls.
ends() {
  local status=$1 came=0; shift
  checks=$((checks + 1))
  : >system/calls
  PATH=$work/bin timeout 20 "$@" >stdout 2>stderr </dev/null || came=$?
  cat stdout stderr >out
  [ $came = "$status" ] || fail "exit status $came, expected $status, of: $*"
}
setup() { local status=$1; shift; ends "$status" source/scripts/setup.sh --os-release system/os-release "$@"; }

# ---- Doubles

# double NAME: a program from standard input; $system is the directory of the system's files.
double() {
  { printf '#!%s\nsystem=%q bin=%q\n' "$BASH" "$work/system" "$work/bin"; cat; } >"bin/$1"
  chmod +x "bin/$1"
}
# doubles of apt and dpkg: the files known and known-after-update have lines "PACKAGE VERSION".
apt_doubles() {
  double dpkg-query <<'TEXT'
shift 3
while read -r package; do
  [[ " $* " != *" $package "* ]] || echo "$package installed"
done <"$system/installed"
TEXT
  double apt-cache <<'TEXT'
[ "$1" = policy ] && shift
[ $# -gt 0 ] || { [ ! -s "$system/known" ] || echo ' 500 http://mirror.example jammy/universe amd64 Packages'; exit; }
while read -r package version; do
  [[ " $* " != *" $package "* ]] ||
    printf '%s:\n  Installed: (none)\n  Candidate: %s\n  Version table:\n' "$package" "$version"
done <"$system/known"
TEXT
  double apt-get <<'TEXT'
echo "$*" >>"$system/calls"
[ "$(id -u)" = 0 ] || { echo 'E: are you root?'; exit 100; }
if [ "$1" = update ]; then
  [ ! -e "$system/known-after-update" ] || cp "$system/known-after-update" "$system/known"
  rm -f "$system/stale"
  exit 0
fi
[ ! -e "$system/stale" ] && [ ! -e "$system/broken" ] || { echo "E: 404  Not Found"; exit 100; }
declare -A versions
while read -r package version; do versions[$package]=${version#*:}; done <"$system/known"
shift
for package in "$@"; do
  case $package in -*) continue ;; esac
  version=${versions[$package]-(none)}
  [ "$version" != '(none)' ] || { echo "E: Package $package has no installation candidate"; exit 100; }
  echo "$package" >>"$system/installed"
  case $package in
    g++) "$bin/make-program" c++ "${version%%-*}" ;;
    cmake | g++-12) [ -e "$bin/$package" ] || "$bin/make-program" "$package" "${version%%-*}" ;;
  esac
done
TEXT
}
user_doubles() {
  double id <<'TEXT'
echo "${BECAME_ROOT:-$(cat "$system/uid")}"
TEXT
  double sudo <<'TEXT'
if [ "$1" = -n ]; then shift; else touch "$system/password-given"; fi
if [ -e "$system/password" ] && [ ! -e "$system/password-given" ]; then
  echo 'sudo: a password is required' >&2
  exit 1
fi
BECAME_ROOT=0 "$@"
TEXT
}
# make-program NAME VERSION [DIRECTORY]: a compiler, a CMake or a ctest, which writes down how it was called.
program_doubles() {
  double make-program <<'TEXT'
file=${3-$bin}/$1
cat >"$file" <<END
#!$BASH
case "\$*" in
  --version) echo "$1 version $2" ;;
  -dumpversion) echo "$2" ;;
  *'--target help') cat "$system/targets" ;;
  *) echo "$1 $2 \$* CXX=\${CXX-}" >>"$system/calls"
     case "\$*" in *'--preset release') mkdir -p build/release; : >build/release/CMakeCache.txt ;; esac ;;
esac
END
chmod +x "$file"
TEXT
  double farandole-train <<'TEXT'
echo "farandole-train $*" >>"$system/calls"
while [ $# -gt 0 ]; do
  [ "$1" != --json ] || printf '{"images_per_second":9.5}\n{"images_per_second":%s,"final":true}\n' "$(cat "$system/images_per_second")" >"$2"
  shift
done
TEXT
  double python3 <<'TEXT'
[ "$1 $2" = '-m venv' ] || exit 2
mkdir -p "$3/bin"
cat >"$3/bin/python" <<END
#!$BASH
case "\$*" in
  --version) echo 'Python 3.10.12' ;;
  '-c import importlib'*) exit 1 ;;
  '-m pip '*) echo "pip \$*" >>"$system/calls"
    [ ! -e "$system/no-pip" ] || exit 1
    case "\$*" in *cmake*) for name in cmake ctest; do "$bin/make-program" \$name 3.31.6 "\${0%/*}"; done ;; esac ;;
  *install_torch.py) [ -e "\$1" ] && echo install_torch.py >>"$system/calls"
    [ ! -e "$system/no-pip" ] || exit 1 ;;
esac
END
chmod +x "$3/bin/python"
TEXT
}

readonly needed='g++ cmake make ninja-build libeigen3-dev libdnnl-dev ocl-icd-opencl-dev zlib1g-dev libpng-dev
  libjpeg-dev libfmt-dev libspdlog-dev nlohmann-json3-dev libsodium-dev libboost-program-options-dev'
readonly optional='openmpi-bin libopenmpi-dev mpich libmpich-dev libpmix-dev dataset-fashion-mnist libgtest-dev
  libgmock-dev ccache'
readonly slurm='slurmctld slurmd slurm-client munge'
make_templates() {
  mkdir -p bin template/source/{scripts,tests,examples} template/system
  local tool
  for tool in bash env cat sed grep awk sort cp rm mkdir ln chmod dirname nproc timeout touch script; do
    ln -s "$(command -v "$tool")" "bin/$tool"
  done
  apt_doubles
  user_doubles
  program_doubles
  mv bin template/
  mv template/bin/sudo template/system/
  cp "$source"/scripts/{setup.sh,tools.sh,python_environment.sh,install_torch.py} template/source/scripts/
  cp "$source/tests/run.sh" template/source/tests/
  cp "$source/examples/fashion_mnist.sh" template/source/examples/
}
make_templates
# system NAME G++ CMAKE: nothing is installed, all packages are known, with these versions of g++ and cmake; the user is
# root, and there is no sudo.
system() {
  local package
  name=$1
  rm -rf system bin source env
  cp -r -P template/. .
  echo 0 >system/uid
  : >system/installed
  : >system/targets
  echo 'ID=ubuntu' >system/os-release
  for package in $needed $optional python3 python3-venv clang-format-14 clang-tidy-14 iproute2 iptables openssh-client \
    openssh-server pkg-config $slurm g++-12; do
    case $package in
      g++) echo "g++ 4:$2" ;;
      cmake) echo "cmake $3" ;;
      g++-12) echo 'g++-12 12.3.0-1ubuntu1~22.04' ;;
      *) echo "$package 1.0-1" ;;
    esac
  done >system/known
}
debian_12() { system "$1" 12.2.0-3 3.25.1-1; }
ubuntu_22() { system "$1" 11.2.0-1ubuntu1 3.22.1-1ubuntu1.22.04.2; }
forget() { sed -i -E "/^($1)( |$)/d" system/known; }
remove() { sed -i -E "/^($1)$/d" system/installed; }
user() { echo 1000 >system/uid; }
with_sudo() { user; cp system/sudo bin/sudo; }
# The commands of apt-get that were called, in their order.
called() {
  local came
  came=$(sed -n 's/^\(install\|update\) .*/\1/p' system/calls | tr '\n' ' ')
  checks=$((checks + 1))
  [ "$came" = "$* " ] || fail "apt-get was called to $came, expected: $*"
}
readonly install='install -y -q --no-install-recommends'

# ---- Command lines

debian_12 'options'
setup 0 --help
has '^usage: scripts/setup.sh'
setup 2 --frobnicate
has '^setup.sh: there is no option --frobnicate$'
has '^usage: '
setup 2 --tensorflow 2.16.2
has '^setup.sh: --tensorflow needs --python DIR'
for option in --python --tensorflow --os-release; do
  setup 2 $option
  has "^setup.sh: $option needs a value"
done
has_no . system/calls
setup 2 --torch
has '^setup.sh: --torch needs --python DIR'
setup 0 --tensorflow 2.16.2 --python env
has 'pip .*tensorflow-cpu==2.16.2' system/calls
has_no 'torch' system/calls

# ---- What is installed

debian_12 'all is new'
setup 0
readonly all='g\+\+ cmake .*libboost-program-options-dev openmpi-bin libopenmpi-dev mpich libmpich-dev libpmix-dev dataset-fashion-mnist libgtest-dev libgmock-dev ccache'
has "^setup.sh: installing $all$"
has_lines 1 .
called install
has "^$install g\+\+ cmake " system/calls
has_no 'g\+\+-12|python3' system/calls
name='nothing is missing'
setup 0
has_lines 1 .
has '^setup.sh: all packages are installed$'
has_no . system/calls
name='one package is missing'
remove libfmt-dev
setup 0
has "^$install libfmt-dev$" system/calls

debian_12 'stale lists'
touch system/stale
setup 0
called install update install
debian_12 'no lists'
mv system/known system/known-after-update; : >system/known
setup 0
called update install
name='no lists, only what is optional'
mv system/known system/known-after-update; : >system/known
remove dataset-fashion-mnist
setup 0
called update install
debian_12 'an unknown package'
forget 'libspdlog-dev|ninja-build'
setup 1
has 'apt does not know, even after apt-get update: ninja-build libspdlog-dev$'
called update
debian_12 'apt-get fails'
touch system/broken
setup 1
called install update install
has 'apt-get has not installed all of this'

# ---- What is optional

debian_12 'no data set'
forget dataset-fashion-mnist
setup 0
has_lines 1 'left out: dataset-fashion-mnist .apt does not know it.; .*--data-dir'
has 'libpmix-dev libgtest-dev libgmock-dev ccache$' system/calls
name='no data set, again'
setup 0
has_lines 1 .
has 'left out: dataset-fashion-mnist'
has_no . system/calls
debian_12 '--dev'
setup 0 --dev
has 'iproute2 iptables .*slurmctld slurmd slurm-client munge' system/calls
debian_12 '--dev without Slurm'
forget slurmd
setup 0 --dev
has_lines 1 'left out: slurmctld slurmd slurm-client munge .apt does not know it.; the test of Slurm is skipped'
has_no 'slurm|munge' system/calls
debian_12 'no candidate for one MPI'
sed -i 's/^libmpich-dev .*/libmpich-dev (none)/' system/known
setup 0
has_lines 1 'left out: mpich libmpich-dev .*no plug-in for MPICH is built, and its tests are left out'
has 'libopenmpi-dev libpmix-dev dataset' system/calls
has_no 'mpich' system/calls
debian_12 'no Open MPI'
forget 'openmpi-bin|libopenmpi-dev'
setup 0
has_lines 1 'left out: openmpi-bin libopenmpi-dev '
has ' mpich libmpich-dev' system/calls
debian_12 'no MPI at all'
forget 'openmpi-bin|libopenmpi-dev|mpich|libmpich-dev'
setup 1
has 'apt does not know.*: openmpi-bin libopenmpi-dev$'
name='an MPI from elsewhere'
bin/make-program mpicxx 1.0
setup 0
has_lines 2 'left out: (mpich|openmpi-bin)'

# ---- torch

debian_12 '--torch'
setup 0 --python env --torch
has '^install_torch.py$' system/calls
has_no 'no torch'
debian_12 '--python without --torch'
setup 0 --python env
has_no torch system/calls
debian_12 '--torch without PyPI'
touch system/no-pip
setup 0 --python env --torch
has_lines 1 '^setup.sh: no torch: the tests of the torch backend, and the comparison of the trainer .*, will be skipped$'

# ---- Not root

debian_12 'with sudo'
with_sudo
setup 0
has "^$install g\+\+ " system/calls
debian_12 'without sudo'
user
setup 1
has_lines 2 .
has '^setup.sh: packages are missing, and you are not root, and there is no sudo. As root, run:$'
has "^  apt-get $install $all$"
has_no . system/calls
name='the command that was named'
sed -n 's/^  apt-get/apt-get/p' out >named.sh
echo 0 >system/uid
ends 0 bash named.sh
user
setup 0
has_lines 1 .
has '^setup.sh: all packages are installed$'
debian_12 'sudo wants a password'
with_sudo
touch system/password
forget dataset-fashion-mnist
setup 1
has 'sudo wants a password, and nobody is there to give it. As root, run:$'
has_lines 1 "^  apt-get $install .*libpmix-dev libgtest-dev libgmock-dev ccache$"
has_lines 1 'left out: dataset-fashion-mnist'
name='sudo wants a password, at a terminal'
ends 0 script -qec "$BASH source/scripts/setup.sh --os-release system/os-release" /dev/null
called install
debian_12 'without sudo and lists'
user
: >system/known
setup 1
has_lines 2 .
has "^  apt-get update && apt-get $install g\+\+ .*libopenmpi-dev"
debian_12 'without sudo, only what is optional'
setup 0
remove 'mpich|libmpich-dev|libgmock-dev|ccache'
user
setup 0
has_lines 3 .
has "left out: mpich libmpich-dev .*no sudo; as root: apt-get $install mpich libmpich-dev.; no plug-in"
has 'left out: libgmock-dev .*; build with -DFARANDOLE_BUILD_TESTS=OFF$'
has 'left out: ccache '

# ---- Ubuntu 22.04, whose g++ and CMake are too old

ubuntu_22 'Ubuntu 22.04'
setup 0
called install
has "^$install .* g\+\+-12 python3 python3-venv openmpi-bin" system/calls
has 'pip .*cmake>=3.25,<4' system/calls
has "export PATH=\"$work/source/build/tools/bin:\\\$PATH\" CXX=g\+\+-12$"
[ ! -e source/build/tools/bin/python3 ] || fail 'a python3 would hide that of the system'
name='Ubuntu 22.04, again'
setup 0
has_lines 2 .
has '^setup.sh: all packages are installed$'
has_no . system/calls
name='Ubuntu 22.04, in a shell that uses them'
sed -n 's/.*by hand: //p' out >exports
echo 'source/scripts/setup.sh --os-release system/os-release' >>exports
ends 0 bash -e exports
has_lines 1 .
has '^setup.sh: all packages are installed$'
name='Ubuntu 22.04, a compiler that went'
remove 'g\+\+-12'; rm bin/g++-12
setup 0
has "^$install g\+\+-12$" system/calls
name='Ubuntu 22.04, --python'
setup 0 --python env
has 'pip .*cmake>=3.25,<4' system/calls
has "export PATH=\"$work/env/bin:"
for script in tests/run.sh examples/fashion_mnist.sh; do
  ubuntu_22 "Ubuntu 22.04, $script"
  sed -i "s|os_release=/etc/os-release|os_release=$work/system/os-release|" source/scripts/setup.sh
  echo 'farandole-train: phony' >system/targets
  preset=ci
  [ $script = tests/run.sh ] || { preset=release; bin/make-program mpicxx 1.0; mkdir -p source/build/release/bin; }
  # A trainer that is not there ends this one.
  if [ $preset = ci ]; then ends 0 source/$script; else ends 127 source/$script; fi
  has "^cmake 3.31.6 --preset $preset .*CXX=g\+\+-12$" system/calls
  has "^cmake 3.31.6 --build --preset $preset .*CXX=g\+\+-12$" system/calls
  has_no '^cmake 3.22' system/calls
done
# trains RATE ARGUMENTS…: runs the example with a trainer that trains RATE images per second
trains() {
  echo "$1" >system/images_per_second
  shift
  ends 0 source/examples/fashion_mnist.sh "$@"
}
# trained ARGUMENTS: of the last call of farandole-train
trained() {
  local calls
  mapfile -t calls < <(grep '^farandole-train ' system/calls)
  checks=$((checks + 1))
  [ "${calls[*]: -1}" = "farandole-train --model cnn --replicas 2$1" ] ||
    fail "the last call is not farandole-train --model cnn --replicas 2$1"
}
mv bin/farandole-train source/build/release/bin/
name='the example on a fast machine'
trains 1500.25
has '^  2. builds farandole-train in build/release: about .* minutes'
has '^farandole-train --model cnn --replicas 2 --max-steps 20 --quiet --json ' system/calls
trained ''
has ' 1500 images per second, so the 5 epochs take about 3 minutes$'
name='the example on a slow machine'
trains 250.75
trained ' --epochs 2'
has ' 250 images per second, so the training takes 2 of 5 epochs: about 8 minutes. --epochs 5 trains all$'
name='the example on a very slow machine'
trains 20.5
trained ' --epochs 1'
name='the example with arguments'
trains 20.5 --epochs 3
trained ' --epochs 3'
has_no 'max-steps' system/calls
name="the example's help"
: >system/calls
ends 0 source/examples/fashion_mnist.sh --help
has '^  examples/fashion_mnist.sh \[arguments of farandole-train\]'
has_no '^(cmake|apt-get)' system/calls
name='no trainer to build'
: >system/targets
ends 1 source/examples/fashion_mnist.sh
has 'fashion_mnist.sh: there is no trainer to build'
ubuntu_22 'Ubuntu 22.04 without root'
user
setup 1
has "^  apt-get $install .* g\+\+-12 python3 python3-venv openmpi-bin"
ubuntu_22 'Ubuntu 22.04 without PyPI'
touch system/no-pip
setup 1
has 'cmake >= 3.25 is needed, and pip cannot install it in .*/build/tools/environment$'
ubuntu_22 'Ubuntu 22.04 without a newer compiler'
forget 'g\+\+-12'
setup 1
has 'apt does not know.*: g\+\+-12$'
ubuntu_22 'Ubuntu 22.04 with a compiler of the caller'
CXX=clang++-15 setup 0
has_no 'g\+\+-12'
has_no 'g\+\+-12' system/calls
ubuntu_22 'a CMake from elsewhere'
bin/make-program cmake 3.28.1
setup 0
has_no 'pip|python3' system/calls
has 'by hand: export CXX=g\+\+-12$'

# ---- Other systems

debian_12 '--print'
setup 0 --print
# shellcheck disable=SC2086  # a list
[ "$(sort stdout)" = "$(printf '%s\n' $needed $optional | sort)" ] || fail 'other packages than expected'
has_no . system/calls
ubuntu_22 '--print, Ubuntu 22.04'
setup 0 --print
has '^g\+\+-12$' stdout
debian_12 '--print on another system'
echo 'ID=fedora' >system/os-release
rm bin/dpkg-query bin/apt-cache bin/apt-get
setup 0 --print --dev --python env
for package in g++ mpich dataset-fashion-mnist python3-venv clang-tidy-14 slurmd; do
  grep -qxF $package stdout || fail "$package is not printed"
done
has_no ' ' stdout
has 'cmake >= 3.25' stderr
has "The packages that are printed have Debian's names" stderr
name='another system'
setup 1
has 'cmake >= 3.25' stderr
has 'On Debian these are: g\+\+ cmake .*dataset-fashion-mnist libgtest-dev libgmock-dev ccache$' stderr
has 'SKIP_SETUP=1' stderr
has_no . stdout
name='no os-release'
rm system/os-release
setup 1
has 'packages of Debian and Ubuntu only'

echo "$checks checks, $failures failures"
exit $((failures > 0))
