#!/usr/bin/env bash
# Installs what the build needs and the system lacks, from the packages of Debian and Ubuntu.
set -euo pipefail

usage() {
  cat <<'END'
usage: scripts/setup.sh [--dev] [--python DIR [--tensorflow VERSION]] [--print] [--os-release FILE]

Installs what is missing on Debian and Ubuntu, with sudo when not root. Says and does nothing when nothing is missing.
On another system it prints what is needed and fails.

  --dev              also what checks of the code and the two-host test need
  --python DIR       also a virtual environment in DIR with what the Python tests need: numpy, and TensorFlow with
                     TensorBoard and tf-keras if they can be had; the tests of what is not there are skipped
  --tensorflow VERSION
                     this version of TensorFlow, such as 2.16.2, in an environment that has none yet
  --print            print the packages and install nothing
  --os-release FILE  the description of the system, /etc/os-release if not given
  --help             this text
END
}

fail() {
  echo "setup.sh: $*" >&2
  exit 1
}

readonly cmake_needed=3.25
# ocl-icd-opencl-dev: the CMake package of libdnnl-dev wants OpenCL, and Debian only recommends it.
readonly build_packages=(
  g++ cmake ninja-build ccache
  openmpi-bin libopenmpi-dev mpich libmpich-dev
  libeigen3-dev libdnnl-dev ocl-icd-opencl-dev zlib1g-dev
  libfmt-dev libspdlog-dev nlohmann-json3-dev libboost-program-options-dev
  libgtest-dev libgmock-dev
  dataset-fashion-mnist
)
readonly python_packages=(python3 python3-venv)
readonly dev_packages=(clang-format-14 clang-tidy-14 iproute2 openssh-client openssh-server)

packages=("${build_packages[@]}")
print_only=no
python_dir=
tensorflow_needed='tensorflow-cpu>=2.16,<2.22'
os_release=/etc/os-release
while [ $# -gt 0 ]; do
  case $1 in
    --dev) packages+=("${dev_packages[@]}") ;;
    --python) [ $# -ge 2 ] || fail "--python needs a directory"; python_dir=$2; shift
              packages+=("${python_packages[@]}") ;;
    --tensorflow) [ $# -ge 2 ] || fail "--tensorflow needs a version"; tensorflow_needed="tensorflow-cpu==$2"; shift ;;
    --print) print_only=yes ;;
    --os-release) [ $# -ge 2 ] || fail "--os-release needs a file"; os_release=$2; shift ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done

# True on Debian, Ubuntu, and systems that say that they are like one of them.
is_debian_like() {
  [ -r "$os_release" ] || return 1
  # shellcheck disable=SC1090  # its place is an argument
  (. "$os_release" && [[ " ${ID-} ${ID_LIKE-} " =~ \ (debian|ubuntu)\  ]])
}

print_needs() {
  cat >&2 <<END
setup.sh knows the packages of Debian and Ubuntu only. Please install by your system's means:
  g++ >= 12 or clang >= 14, cmake >= $cmake_needed, ninja; ccache if you like
  Open MPI or MPICH, or both, with their compiler wrappers
  Eigen >= 3.4, oneDNN >= 2.6, zlib
  fmt, spdlog, nlohmann-json >= 3, Boost.Program_options >= 1.74
  GoogleTest with GoogleMock
  Fashion-MNIST: its four IDX files in one directory, named to farandole-train by --data-dir
  for the Python tests: Python >= 3.9 with numpy and, if you like, TensorFlow 2.16 to 2.21
  to check the code: clang-format 14, clang-tidy 14, iproute2, OpenSSH
On Debian these are: ${packages[*]}
Then set SKIP_SETUP=1, and the other scripts leave this one out.
END
}

# Asks for no password unless there is somebody to answer.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    env DEBIAN_FRONTEND=noninteractive "$@"
  elif ! command -v sudo >/dev/null; then
    fail "neither root nor sudo; as root, run: $*"
  elif [ -t 0 ]; then
    sudo env DEBIAN_FRONTEND=noninteractive "$@"
  else
    sudo -n true 2>/dev/null || fail "sudo wants a password and nobody is there to give it; as root, run: $*"
    sudo -n env DEBIAN_FRONTEND=noninteractive "$@"
  fi
}

is_installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# True if the lists of packages that this system has name every one of them.
are_known() {
  local package
  for package in "$@"; do
    apt-cache show --no-all-versions "$package" >/dev/null 2>&1 || return 1
  done
}

install_missing() {
  local missing=() package
  for package in "${packages[@]}"; do
    is_installed "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  echo "setup.sh: installing ${missing[*]}"
  local install=(apt-get install -y -q --no-install-recommends "${missing[@]}")
  # Lists that are there may be out of date, which shows when a package is no longer where they say.
  if are_known "${missing[@]}" && as_root "${install[@]}" </dev/null; then return 0; fi
  as_root apt-get update -q </dev/null
  as_root "${install[@]}" </dev/null
}

check_cmake() {
  local found
  command -v cmake >/dev/null || fail "there is no cmake on PATH; $cmake_needed or newer is needed"
  found=$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')
  [ "$(printf '%s\n' "$cmake_needed" "$found" | sort -V | head -n 1)" = "$cmake_needed" ] ||
    fail "cmake is $found ($(command -v cmake)); $cmake_needed or newer is needed, as in Debian 12 and Ubuntu 23.04"
}

# True if the environment's interpreter finds the modules.
has_modules() {
  "$python_dir/bin/python" -c 'import importlib.util as u, sys; sys.exit(any(u.find_spec(m) is None for m in sys.argv[1:]))' "$@"
}

make_python_environment() {
  local pip=("$python_dir/bin/python" -m pip --disable-pip-version-check install -q)
  [ -x "$python_dir/bin/python" ] || python3 -m venv "$python_dir"
  if ! has_modules numpy ml_dtypes cloudpickle; then
    echo "setup.sh: installing numpy in $python_dir"
    "${pip[@]}" numpy ml_dtypes cloudpickle || { echo "setup.sh: no numpy for the Python tests, which will be skipped" >&2; return 0; }
  fi
  if ! has_modules tensorflow; then
    echo "setup.sh: installing TensorFlow in $python_dir"
    "${pip[@]}" "$tensorflow_needed" || {
      echo "setup.sh: no $tensorflow_needed for $("$python_dir/bin/python" --version): its tests will be skipped" >&2
      return 0
    }
  fi
  if ! has_modules tensorboard tf_keras; then
    echo "setup.sh: installing TensorBoard and tf-keras in $python_dir"
    local version
    # tf-keras would install the package tensorflow over tensorflow-cpu; all else that it needs is there already.
    version=$("$python_dir/bin/python" -c 'import tensorflow; print(tensorflow.__version__)' 2>/dev/null) &&
      "${pip[@]}" --no-deps "tf-keras==${version%.*}.*" && "${pip[@]}" tensorboard ||
      echo "setup.sh: no TensorBoard and tf-keras: their tests will be skipped" >&2
  fi
}

if [ $print_only = yes ]; then
  printf '%s\n' "${packages[@]}"
  exit 0
fi
if ! is_debian_like; then
  print_needs
  exit 1
fi
install_missing
check_cmake
[ -z "$python_dir" ] || make_python_environment
