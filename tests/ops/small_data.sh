# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by tests of farandole-train that need data. Skips the test if there is no data.

fashion_mnist=/usr/share/datasets/fashion-mnist
if [ ! -d $fashion_mnist ]; then
  echo "skipped: there is no $fashion_mnist (Debian and Ubuntu: apt-get install dataset-fashion-mnist)"
  exit 77
fi

# part_of_file FILE DIMENSIONS BYTES_EACH COUNT SKIP: samples of one of Fashion-MNIST's files, as an IDX file. Its header
# is the magic number, the count, and for images 28 and 28.
part_of_file() {
  local header_bytes=$((4 + 4 * $2)) extents=
  [ "$2" = 1 ] || extents='\x00\x00\x00\x1c\x00\x00\x00\x1c'
  printf '%b' "$(printf '\\x%02x' 0 0 8 "$2" 0 0 $(($4 / 256)) $(($4 % 256)))$extents"
  head -c $(($4 * $3)) < <(zcat "$fashion_mnist/$1.gz" 2>/dev/null | tail -c +$((header_bytes + 1 + $5 * $3)))
}
# small_data DIRECTORY TRAINING TEST [SKIP]: so many images of each set of Fashion-MNIST, after the first SKIP
small_data() {
  local set count
  mkdir -p "$1"
  for set in train t10k; do
    if [ $set = train ]; then count=$2; else count=$3; fi
    part_of_file $set-images-idx3-ubyte 3 784 "$count" "${4-0}" >"$1/$set-images-idx3-ubyte"
    part_of_file $set-labels-idx1-ubyte 1 1 "$count" "${4-0}" >"$1/$set-labels-idx1-ubyte"
  done
}
