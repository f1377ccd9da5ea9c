#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: bundle_on_double.sh BUILD_DIRECTORY
# Makes the bundle of tests/run.sh --gpu-bundle, and runs it on the double in a bare system: a root directory with only the files
# of libc6, libstdc++6, bash, coreutils and python3. Every step must print a line, and the report must say that it is not from a
# GPU. Ends with 77 where no such root directory can be made.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAIL: $*"; exit 1; }

if [ "$(id -u)" != 0 ] || ! command -v dpkg-query >/dev/null; then echo 'skipped: a root of its own needs root, and dpkg'; exit 77; fi
unshare -m true 2>/dev/null || { echo 'skipped: no mount namespaces here'; exit 77; }

libraries=()
if [ -d "$build/python/farandole" ]; then libraries=("$work/libfarandole_torch_1.0_cpython-39.so"); touch "${libraries[@]}"; fi
"$here/make_bundle.sh" "$build" "$work/bundle" "${libraries[@]}" || fail 'no bundle was made'
most=20
[ ! -e "$work/bundle/bin/farandole-train" ] || most=60
kilobytes=$(du -sk "$work/bundle" | cut -f1)
[ "$kilobytes" -le $((most * 1024)) ] || fail "the bundle has $kilobytes KiB, more than $most MiB"
shopt -s nullglob
for file in "$work"/bundle/bin/* "$work"/bundle/{,python/farandole/}lib/{,farandole/}*.so*; do
  [[ $file != *.xz ]] || continue
  paths=$(readelf -d "$file" | sed -n 's/.*(R\(UN\)\{0,1\}PATH).*\[\(.*\)\]/\2/p')
  for path in ${paths//:/ }; do [[ $path == \$ORIGIN* ]] || fail "$file looks for libraries in $path"; done
done
mkdir "$work/double"
# With what the double needs, and a driver does not.
cp -L "$build"/lib/libfake_{cuda,nccl}.so "$work"/bundle/lib/libfmt.so.* "$work/double/"
[ ! -e "$work/bundle/bin/farandole-train" ] || cp -L "$build"/lib/libfake_{cublas,cudnn}.so "$work/double/"
! "$work/bundle/run" 2>"$work/said" || fail 'it runs without arguments'
grep -q '^usage: ' "$work/said" || fail "no usage without arguments: $(cat "$work/said")"

# Scripts of all steps, also of those that cannot run here, and what they import.
(cd "$here" && python3 - "$work/bundle/tests/gpu" <<'TEXT') || fail 'the bundle lacks scripts'
import pathlib, re, sys
import steps
there = pathlib.Path(sys.argv[1])
words = [word for step in steps.steps(2, False) for word in step.command]
needed = {match[1] for word in words for match in [re.fullmatch(r"\{tests\}/(.+)", word)] if match}
for script in there.glob("*.py"):
    modules = re.findall(r"^(?:import|from) (\w+)", script.read_text(), re.MULTILINE)
    needed.update(f"{module}.py" for module in modules if pathlib.Path(f"{module}.py").exists())
missing = sorted(name for name in needed if not (there / name).exists())
sys.exit(f"missing: {missing}" if missing or len(needed) < 12 else 0)
TEXT
if [ ${#libraries[@]} -gt 0 ]; then
  for file in torch/source/module.cpp torch/_backend_library.py include/farandole/collectives.h "torch/lib/${libraries[0]##*/}"; do
    [ -e "$work/bundle/python/farandole/$file" ] || fail "the bundle's Python package has no $file"
  done
fi

# Without a device everything is skipped, which is no success. The time is too short for tests that need no device.
status=0
FARANDOLE_CUDA_LIBRARY=/nowhere/libcuda.so.1 "$work/bundle/run" --quick "$work/none" 9 >"$work/said" || status=$?
[ "$status" = 77 ] || fail "it ended with $status without a device: $(cat "$work/said")"
grep -q '^skipped .* s  bring-up: no device: ' "$work/said" || fail "no step says that there is no device: $(cat "$work/said")"

# ---- A root with next to nothing in it

root=$work/root
mkdir -p "$root"/{proc,dev,tmp,bundle,double,out,etc}
python=$(readlink -f "$(command -v /usr/bin/python3)")
packages=(libc6 libc-bin libstdc++6 libgcc-s1 gcc-12-base bash libtinfo6 coreutils libacl1 libattr1 libgmp10 libselinux1 libpcre2-8-0 libssl3 \
  zlib1g libexpat1 libffi8 libbz2-1.0 liblzma5 libuuid1 libreadline8 libncursesw6 libsqlite3-0 libnsl2 libtirpc3 media-types)
mapfile -t packages < <(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${packages[@]}" 'libpython3*' 'python3*-minimal' \
  "$(basename "$python")" 2>/dev/null | sed -n 's/ installed$//p' | sort -u)
dpkg-query -L "${packages[@]}" | sort -u | while read -r file; do
  if [[ -f $file && $file != */doc/* && $file != */man/* ]]; then echo "${file#/}"; fi
done >"$work/files"
tar -C / -cT "$work/files" | tar -x -C "$root"
# What Debian keeps as links from / into /usr.
for directory in bin sbin lib lib64; do
  [ -L "/$directory" ] || continue
  if [ -d "$root/$directory" ]; then mkdir -p "$root/usr/$directory"; cp -a "$root/$directory/." "$root/usr/$directory/"; rm -rf "${root:?}/$directory"; fi
  ln -s "usr/$directory" "$root/$directory"
done
ln -sf "$(basename "$python")" "$root/usr/bin/python3"
chroot "$root" /bin/bash -c 'python3 -c "import ctypes, json, subprocess"' || { echo 'skipped: no root could be made of these packages'; exit 77; }
[ ! -e "$root/usr/bin/sed" ] || fail 'the root has more than it should'

mkdir "$work/out"
# in_root [VARIABLE=VALUE]... COMMAND [ARGUMENT]...
# shellcheck disable=SC2016  # expanded in the namespace
in_root() {
  root=$root work=$work unshare -m bash -c '
    for each in bundle double out; do mount --bind "$work/$each" "$root/$each"; done
    mount --bind /proc "$root/proc"; mount --rbind /dev "$root/dev"
    exec chroot "$root" /usr/bin/env -i PATH=/usr/bin HOME=/tmp "$@"' in_root "$@"
}

if [ ${#libraries[@]} -gt 0 ]; then
  # Without the package's __init__.py, which needs numpy.
  in_root LD_LIBRARY_PATH=/bundle/lib python3 -c '
import sys, types
sys.modules["farandole"] = types.ModuleType("farandole")
sys.modules["farandole"].__path__ = ["/bundle/python/farandole"]
from farandole import _engine
assert _engine.library_for_linking() == "/bundle/python/farandole/lib/libfarandole.so.0.1", _engine.library_for_linking()
assert _engine.describe()["device_plugins"] == ["cuda"], _engine.describe()' || fail "the bundle's Python package does not work"
fi

status=0
in_root LD_LIBRARY_PATH=/double FARANDOLE_CUDA_LIBRARY=/double/libfake_cuda.so FARANDOLE_NCCL_LIBRARY=/double/libfake_nccl.so \
  FARANDOLE_CUBLAS_LIBRARY=/double/libfake_cublas.so FARANDOLE_CUDNN_LIBRARY=/double/libfake_cudnn.so \
  /bundle/run --quick /out 300 >"$work/said" || status=$?
cat "$work/said"
[ "$status" = 0 ] || fail "it ended with $status"
[ "$(find "$work/out" -type f | wc -l)" -le 6 ] || fail 'there are more than 6 files'

page=$work/out/gpu-report.md
grep -q '^\*\*Not a GPU result: the driver is the double' "$page" || fail 'the page does not say that it is the double'
if grep -qE '\| (met|\*\*missed\*\*) \|' "$page"; then fail 'a target was judged on the double'; fi
for text in 'fake device 1' '| pack |' 'ncclAllReduce, us' 'event record, us' 'nccl_s'; do
  grep -qF -- "$text" "$page" || fail "the page has no '$text'"
done
# A line for each step, also of those that cannot run here, and those are of torch and NVIDIA's tools only.
(cd "$here" && python3 -c 'import steps; print(*steps.names(steps.steps(2, True)), sep="\n")') >"$work/steps"
while read -r step; do
  grep -qE "^(passed|skipped) .* s  $step(:|\$)" "$work/said" || fail "no line of '$step'"
done <"$work/steps"
if grep '^skipped' "$work/said" | grep -vE "the devices are the double's|has no trainer|Fashion-MNIST is not there"; then fail 'more was skipped than the double explains'; fi
