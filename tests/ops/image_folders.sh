#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: image_folders.sh BUILD_DIRECTORY
# Makes folders of PNG files, trains the example on them, and trains farandole-train on them with augmentation and threads
# of the loader: stopped and resumed on other numbers of replicas it gives the bits of a training in one piece.
set -u
build=$(cd "$1" && pwd)
command -v python3 >/dev/null || { echo "there is no python3 to write images"; exit 77; }
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
failures=0
fail() { echo "FAIL: $*"; failures=$((failures + 1)); }

python3 - <<'PYTHON'
# Images of 20x24 pixels with noise: stripes across, stripes down, or a bright middle.
import os, random, struct, zlib

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

def write_png(path, rows):
    header = struct.pack(">IIBBBBB", len(rows[0]) // 3, len(rows), 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))

random.seed(1)
bright = {"across": lambda x, y: y // 3 % 2, "down": lambda x, y: x // 3 % 2,
          "middle": lambda x, y: abs(x - 12) < 6 and abs(y - 10) < 5}
for part, count in (("train", 48), ("test", 10)):
    for kind, is_bright in bright.items():
        os.makedirs(f"images/{part}/{kind}")
        for i in range(count):
            rows = [[min(255, max(0, int(random.gauss(170 if is_bright(x, y) else 80, 25)))) for x in range(24)
                     for _ in range(3)] for y in range(20)]
            write_png(f"images/{part}/{kind}/{i}.png", rows)
PYTHON

"$build/bin/examples/image_folders" images checkpoints || fail "the example has not learned"
[ -e checkpoints/best/manifest.json ] || fail "there is no best checkpoint"
"$build/bin/examples/image_folders" images checkpoints | grep '^goes on after 36 training steps' >/dev/null || fail "the example does not resume"

options=(--data images --data-dir images --image-size 16 --model cnn_bn --global-batch 16 --deterministic --augment-crop 2
         --augment-flip 0.5 --augment-cutout 4 --mixup 0.2 --quiet)
train() { "$build/bin/farandole-train" "${options[@]}" "$@" || fail "farandole-train $*"; }
checksum() { sed -nE 's/.*"parameters_checksum":"([0-9a-f]+)".*"final":true.*/\1/p' "$1"; }
train --max-steps 14 --json whole.json
train --max-steps 4 --checkpoint-dir run --replicas 2 --loader-threads 2
train --max-steps 11 --checkpoint-dir run --replicas 4 --loader-threads 1 --resume
train --max-steps 14 --checkpoint-dir run --resume --json parts.json
[ -n "$(checksum whole.json)" ] && [ "$(checksum whole.json)" = "$(checksum parts.json)" ] ||
  fail "in one piece the parameters have checksum $(checksum whole.json), in parts $(checksum parts.json)"
[ $failures = 0 ] && echo "as expected"
exit $((failures > 0))
