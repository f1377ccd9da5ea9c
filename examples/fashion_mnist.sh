#!/usr/bin/env bash
# Installs what is missing, builds, and trains a convolutional network on Fashion-MNIST with 2 ranks.
#
#   examples/fashion_mnist.sh [arguments of farandole-train]      e.g. --epochs 1, or --help for all
#
# FARANDOLE_MPI=openmpi or mpich chooses between two MPIs; SKIP_SETUP=1 installs nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly build=build/release

[ -n "${SKIP_SETUP-}" ] || scripts/setup.sh

# The value of a variable of CMake's cache; nothing if it is not there or was not found.
cached() {
  sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt" | grep -v -e '-NOTFOUND$' || true
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
cmake --preset release >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
flavours=()
for flavour in openmpi mpich; do
  if [ -n "$(cached FARANDOLE_MPI_${flavour}_WRAPPER)" ] && [ -n "$(cached FARANDOLE_MPI_${flavour}_LAUNCHER)" ]; then
    flavours+=("$flavour")
  fi
done
cmake --build --preset release --target farandole-train "${flavours[@]/#/farandole_mpi_}"
rm -f "$log"
trap - EXIT

case ${FARANDOLE_MPI-auto} in
  auto) chosen=${flavours[0]-off} ;;
  *) chosen=$FARANDOLE_MPI ;;
esac
train=("$build/bin/farandole-train" --model cnn)
if [ "$chosen" = off ]; then
  echo "No MPI is used: the 2 replicas are threads of one process."
  exec "${train[@]}" --replicas 2 "$@"
fi
if [[ " ${flavours[*]} " != *" $chosen "* ]]; then
  echo "fashion_mnist.sh: FARANDOLE_MPI is $chosen, but plug-ins were built for: ${flavours[*]:-no MPI}" >&2
  exit 1
fi
launch=("$(cached "FARANDOLE_MPI_${chosen}_LAUNCHER")" -np 2)
if [ "$chosen" = openmpi ]; then
  # Open MPI counts whole cores, not hardware threads, and binds each rank to one.
  cores=$(lscpu -p=CORE,SOCKET 2>/dev/null | grep -v '^#' | sort -u | wc -l)
  if [ "$cores" -lt 2 ] || [ "$(nproc)" -lt 2 ]; then launch+=(--oversubscribe --bind-to none); fi
  if [ "$(id -u)" = 0 ]; then launch+=(--allow-run-as-root); fi
fi
exec "${launch[@]}" "${train[@]}" "$@"
