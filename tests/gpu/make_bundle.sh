#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: make_bundle.sh BUILD_DIRECTORY DIRECTORY [TORCH_LIBRARY...]
# Makes DIRECTORY, which runs on a machine that has a driver, an NCCL, bash and python3, and nothing of Farandole's:
# stripped programs, the libraries that a bare Debian or Ubuntu lacks, the scripts. `DIRECTORY/run OUT [SECONDS]` runs it.
# If the build has the trainer, the bundle gets it too, with oneDNN (compressed; run.py unpacks it) and Fashion-MNIST, if it
# is installed. The size is then 60 MiB at most, instead of 20; a run may carry 64.
# If the build has the Python package, the bundle gets it, with the sources of farandole.torch's library, which the machine
# compiles. TORCH_LIBRARY: a library that was built ahead (`python -m farandole.build_ops --torch --output-dir`) for the
# machine's torch and Python; the machine uses the library if it fits, and then needs no compiler.
set -euo pipefail
[ $# -ge 2 ] || { sed -n 's/^# \{0,1\}//;3,10p' "$0" >&2; exit 2; }
build=$(cd "$1" && pwd) bundle=$2
torch_libraries=("${@:3}")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fail() { echo "make_bundle.sh: $*" >&2; exit 1; }

programs=(farandole_device_test farandole_device_faults engine_device_test cuda_kernels_test farandole_gpu_figures farandole-bench farandole-info)
for program in "${programs[@]}"; do
  [ -x "$build/bin/$program" ] || fail "$build/bin has no $program: build the target farandole_gpu_tests first"
done
for library in "${torch_libraries[@]}"; do
  [[ -f $library && ${library##*/} == libfarandole_torch_*.so ]] || fail "$library is no file libfarandole_torch_VERSION_PYTHON.so"
done
[ ${#torch_libraries[@]} = 0 ] || [ -d "$build/python/farandole" ] || fail "$build has no Python package: configure it with FARANDOLE_WITH_PYTHON=ON"
if [ -e "$bundle" ] && [ -n "$(ls -A "$bundle")" ] && [ ! -e "$bundle/bin/farandole-info" ]; then
  fail "$bundle exists, and is no bundle: name a new folder"
fi
[ ! -x "$build/bin/farandole-train" ] || programs+=(farandole-train trainer_device_test)
rm -rf "$bundle"
mkdir -p "$bundle"/{bin,lib/farandole,tests/gpu,tests/support}
bundle=$(cd "$bundle" && pwd)
cp "${programs[@]/#/$build/bin/}" "$bundle/bin/"
cp -L "$build/lib/farandole/libfarandole_cuda.so" "$bundle/lib/farandole/"
cp -L "$build/lib/libfarandole_torch_probe.so" "$bundle/lib/"
[ ! -x "$build/bin/farandole-train" ] || cp -L "$build/lib/farandole/libfarandole_trainer_cuda.so" "$bundle/lib/farandole/"

# The build's own libraries, by the names that programs ask for.
shopt -s extglob nullglob
cp -L "$build"/lib/libfarandole?(_trainer).so.+([0-9]).+([0-9]) "$bundle/lib/"
[ -e "$bundle/bin/farandole-train" ] || rm -f "$bundle"/lib/libfarandole_trainer.so.*

# What these need, except what every Debian and Ubuntu has: C, C++ and the loader.
LD_LIBRARY_PATH=$bundle/lib ldd "$bundle"/bin/* "$bundle"/lib/*.so "$build/lib/farandole/libfarandole_cuda.so" >"$bundle/needed"
while read -r name _ path _; do
  case $name in
    libc.so* | libm.so* | libstdc++.so* | libgcc_s.so* | libpthread.so* | libdl.so* | librt.so* | ld-linux* | */ld-linux* | linux-vdso*) continue ;;
  esac
  [[ $path == /* ]] && [ ! -e "$bundle/lib/$name" ] && cp -L "$path" "$bundle/lib/$name"
done <"$bundle/needed" || true
missing=$(LD_LIBRARY_PATH=$bundle/lib ldd "$bundle"/bin/* "$bundle"/lib/*.so* "$bundle"/lib/farandole/*.so | grep 'not found' | sort -u || true)
[ -z "$missing" ] || fail "libraries are missing: $missing"
rm "$bundle/needed"
chmod u+w "$bundle"/lib/*.so*
strip --strip-unneeded "$bundle"/bin/* "$bundle"/lib/*.so* "$bundle"/lib/farandole/*.so

if [ -x "$bundle/bin/farandole-train" ]; then
  # Most of the bundle, and a fifth of it when compressed. A higher preset takes four times as long for 4 % less.
  for library in "$bundle"/lib/libdnnl.so.*; do
    python3 -c 'import lzma, shutil, sys
with open(sys.argv[1], "rb") as plain, lzma.open(sys.argv[1] + ".xz", "wb", preset=1) as packed: shutil.copyfileobj(plain, packed)' "$library"
    rm "$library"
  done
  data=/usr/share/datasets/fashion-mnist
  [ ! -d $data ] || { mkdir "$bundle/data" && cp -rL $data "$bundle/data/"; }
fi

# The Python package, as a wheel has it.
if [ -d "$build/python/farandole" ]; then
  package=$bundle/python/farandole
  mkdir -p "$bundle/python"
  # Without links and libraries of the build, and libraries for TensorFlow.
  (cd "$build/python" && tar -c --exclude=__pycache__ --exclude='*/lib' farandole) | tar -xC "$bundle/python"
  mkdir -p "$package"/lib/farandole "$package"/torch/lib
  cp "$bundle"/lib/libfarandole.so.+([0-9]).+([0-9]) "$package/lib/"
  cp "$bundle/lib/farandole/libfarandole_cuda.so" "$package/lib/farandole/"
  for library in "${torch_libraries[@]}"; do cp -L "$library" "$package/torch/lib/"; done
fi

cp "$here"/{engine_client,run,steps,report,torch_*}.py "$here"/{machine,bring_up}.sh "$bundle/tests/gpu/"
cp "$here/../../bindings/python/farandole/_engine_interface.py" "$bundle/tests/gpu/"
cp "$here"/../support/{local_job.sh,own_host.sh,resnet50.py} "$bundle/tests/support/"
cat >"$bundle/run" <<'TEXT'
#!/usr/bin/env bash
# usage: run OUT [SECONDS]     tests and measures on this machine's GPUs; see tests/gpu/run.py --help
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec python3 "$here/tests/gpu/run.py" "$here" "$@"
TEXT
chmod +x "$bundle/run"
echo "$bundle: $(du -sh "$bundle" | cut -f1)"
