#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs missing packages, builds, and trains a convolutional network on Fashion-MNIST with 2 ranks.
#
#   examples/fashion_mnist.sh [arguments of farandole-train]      e.g. --epochs 1, or --help for all
#
# Without arguments it trains 5 epochs, or fewer on a slow machine, so that training takes at most about ten minutes.
# FARANDOLE_MPI=openmpi or mpich chooses between two MPIs; SKIP_SETUP=1 installs nothing.
set -euo pipefail
# Paths in the arguments are relative to the caller's directory, so the training runs there.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root build=$root/build/release

if [ $# = 1 ] && [[ $1 = --help || $1 = -h ]]; then
  sed -n '3,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  if [ -x "$build/bin/farandole-train" ]; then exec "$build/bin/farandole-train" --help; fi
  echo 'farandole-train is not built yet; once it is, this command prints its options, too.'
  exit 0
fi
# A misspelt option is refused here, before the build, which takes minutes.
known=$(sed -nE 's/^ +\("([a-z-]+)".*/\1/p' "$root"/ops/trainer/tools/train_option_table.cpp 2>/dev/null || true)
for word in "$@"; do
  name=${word%%=*}
  if [[ -z $known || $name != --* || $name = --help || $name = --version ]] || grep -x -e "${name#--}" <<<"$known" >/dev/null; then continue; fi
  echo "fashion_mnist.sh: farandole-train has no option $name; those for training are: ${known//$'\n'/ }" >&2
  exit 2
done
case ${FARANDOLE_MPI-auto} in
  auto | openmpi | mpich | pmix | off) ;;
  *) echo "fashion_mnist.sh: FARANDOLE_MPI is '$FARANDOLE_MPI'; it must be openmpi, mpich, pmix, off or auto" >&2; exit 2 ;;
esac
cat >&2 <<TEXT
fashion_mnist.sh does three things:
  1. installs missing packages of the system${SKIP_SETUP:+ (left out: SKIP_SETUP is set)}
  2. builds farandole-train in build/release: about 3 minutes on two cores the first time
  3. trains a convolutional network on Fashion-MNIST with 2 ranks: 5 epochs, about 4 minutes on two cores
TEXT
[ -n "${SKIP_SETUP-}" ] || "$root/scripts/setup.sh"
# shellcheck source=scripts/tools.sh
source "$root/scripts/tools.sh"
use_tools ''

# Prints the value of a variable of CMake's cache, or nothing if the variable is missing or NOTFOUND.
cached() {
  sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt" | grep -v -e '-NOTFOUND$' || true
}

# Format of the build's progress, which ninja rewrites in one line on a terminal.
export NINJA_STATUS='build: %f of %t steps, %e s: '
(cd "$root" && cmake --preset release)
if ! (cd "$root" && cmake --build --preset release --target help) | grep 'farandole-train:' >/dev/null; then
  echo "fashion_mnist.sh: there is no trainer to build; the table above says what it needs" >&2
  exit 1
fi
flavours=()
for flavour in openmpi mpich; do
  if [ -n "$(cached FARANDOLE_MPI_${flavour}_WRAPPER)" ] && [ -n "$(cached FARANDOLE_MPI_${flavour}_LAUNCHER)" ]; then
    flavours+=("$flavour")
  fi
done
(cd "$root" && cmake --build --preset release --target farandole-train farandole_run "${flavours[@]/#/farandole_mpi_}")

case ${FARANDOLE_MPI-auto} in
  auto) chosen=${flavours[0]-off} ;;
  *) chosen=$FARANDOLE_MPI ;;
esac
train=("$build/bin/farandole-train" --model cnn)
launch=()

minutes() {
  case $1 in 0) echo 'less than a minute' ;; 1) echo 'about a minute' ;; *) echo "about $1 minutes" ;; esac
}

# Measures the first steps, and adds `--epochs` for a training of at most about ten minutes. An epoch has 60,000 images.
limit_epochs() {
  local steps=$build/first_steps.json rate epochs
  echo 'fashion_mnist.sh: measuring the first 20 training steps' >&2
  "${launch[@]}" "${train[@]}" --max-steps 20 --quiet --json "$steps" >/dev/null
  rate=$(sed -n '$s/.*"images_per_second":\([0-9]*\).*/\1/p' "$steps")
  if [ "${rate:-0}" -lt 1 ]; then rate=1; fi
  epochs=$((rate * 600 / 60000))
  if [ "$epochs" -ge 5 ]; then
    echo "fashion_mnist.sh: $rate images per second, so the 5 epochs take $(minutes $((5000 / rate)))" >&2
    return
  fi
  if [ "$epochs" -lt 1 ]; then epochs=1; fi
  echo "fashion_mnist.sh: $rate images per second, so the training takes $epochs of 5 epochs:" \
    "$(minutes $((epochs * 1000 / rate))). --epochs 5 trains all" >&2
  train+=(--epochs "$epochs")
}

if [ "$chosen" = off ]; then
  echo "No MPI is used: the 2 replicas are threads of one process."
  train+=(--replicas 2)
else
  if [[ " ${flavours[*]} " != *" $chosen "* ]]; then
    echo "fashion_mnist.sh: FARANDOLE_MPI is $chosen, but plug-ins were built for: ${flavours[*]:-no MPI}" >&2
    exit 1
  fi
  launch=("$(cached "FARANDOLE_MPI_${chosen}_LAUNCHER")" -np 2)
fi
if [ "$chosen" = openmpi ]; then
  # Unbound, each replica computes with its share of all cores. Open MPI takes one rank per core, not per hardware
  # thread, so a machine with a single core needs --oversubscribe for 2 ranks.
  launch+=(--bind-to none)
  cores=$(lscpu -p=CORE,SOCKET 2>/dev/null | awk '!/^#/ && !seen[$0]++ { n++ } END { print n + 0 }' || true)
  if [ "$cores" -lt 2 ] || [ "$(nproc)" -lt 2 ]; then launch+=(--oversubscribe); fi
  if [ "$(id -u)" = 0 ]; then launch+=(--allow-run-as-root); fi
fi
[ $# -gt 0 ] || limit_epochs
exec "${launch[@]}" "${train[@]}" "$@"
