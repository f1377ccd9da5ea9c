# SPDX-License-Identifier: Apache-2.0
"""Windows that were in use when the job failed are not reused, because a stopped rank may still write to them."""

import os
import tempfile
import time

import support

support.need("numpy", "tensorflow")

import tensorflow as tf

import farandole
import farandole.tensorflow as hvd
from farandole.tensorflow import _library

BYTES = 1 << 20

hvd.init()
folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)
done = os.path.join(folder, "done")
x = tf.random.normal([BYTES // 4])
if hvd.rank() == 1:
    farandole.abort("the other rank looks at its memory")
    while not os.path.exists(done):
        time.sleep(0.01)
else:
    try:
        before = _library.memory()
        try:
            hvd.allreduce(x, name="never")
        except Exception as error:
            print(f"as expected: {error}")
        del x
        after = _library.memory()
        if before["windows_in_use"] == 0:
            print("skipped: no windows here")
        elif sum(after[name] - before[name] for name in ("windows_in_use", "windows_kept")) < 0:
            print("windows are not kept", flush=True)
        else:
            print(f"before {before}, after {after}", flush=True)
    finally:
        open(done, "w").close()
os._exit(1)
