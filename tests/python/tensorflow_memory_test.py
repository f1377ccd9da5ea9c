# SPDX-License-Identifier: Apache-2.0
"""Large tensors in windows, and the build of the op library."""

import os
import tempfile

from tensorflow_support import OpTest, main

import numpy as np
import tensorflow as tf

import farandole
import farandole.numpy
from farandole import _engine, _files, objects
from farandole.tensorflow import _library, _op_library, mpi_ops

LARGE = 1 << 20  # elements of float32: 4 MiB, from the pool of windows


class Memory(OpTest):
    def setUp(self):
        super().setUp()
        self.windows = farandole.local_size() > 1 and os.environ.get("FARANDOLE_TENSORFLOW_WINDOWS", "on") == "on"

    def test_large_tensors_come_from_windows(self):
        before = _library.memory()
        x = tf.random.normal([LARGE])
        after = _library.memory()
        self.assertEqual(_library.describe()["windows"], self.windows)
        if self.windows:
            self.assertEqual(after["windows_in_use"] - before["windows_in_use"], 4 * LARGE)
        farandole_sum = mpi_ops._allreduce(x)
        everyone = mpi_ops.allgather(x[tf.newaxis])
        np.testing.assert_allclose(farandole_sum.numpy(), everyone.numpy().sum(0), rtol=1e-5, atol=1e-5)
        del x, farandole_sum, everyone
        self.assertLessEqual(_library.memory()["windows_in_use"], after["windows_in_use"])

    def test_small_tensors_do_not(self):
        before = _library.memory()
        tensors = [tf.random.normal([100]) for _ in range(100)]
        self.assertEqual(_library.memory()["windows_in_use"], before["windows_in_use"])
        del tensors

    def test_blocks_are_used_again_and_given_back(self):
        if not self.windows:
            self.skipTest("no windows here")
        limit = _library.memory()["limit"]
        # Without values, so that even on large machines no page of them is touched.
        tensors = [tf.raw_ops.Empty(shape=[limit // 4], dtype=tf.uint8) for _ in range(3)]
        in_use = _library.memory()["windows_in_use"]
        self.assertGreaterEqual(in_use, 3 * (limit // 4))
        del tensors
        kept = _library.memory()["windows_kept"]
        tensors = [tf.raw_ops.Empty(shape=[limit // 4], dtype=tf.uint8) for _ in range(6)]
        self.assertLess(_library.memory()["windows_kept"], kept)
        del tensors
        memory = _library.memory()
        self.assertLess(memory["windows_in_use"], in_use)
        self.assertLessEqual(memory["windows_kept"] + memory["ordinary_kept"], limit)

    def test_statistics(self):
        before = tf.config.experimental.get_memory_info("CPU:0")["current"]
        x = tf.random.normal([LARGE])
        self.assertGreaterEqual(tf.config.experimental.get_memory_info("CPU:0")["current"] - before, 4 * LARGE)
        del x

    def test_a_forked_child_keeps_its_hands_off(self):
        x = tf.fill([LARGE], 3.0)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                good = float(x.numpy().sum()) == 3.0 * LARGE
                y = tf.constant(np.full([LARGE], 4.0, np.float32))
                good = good and float(y.numpy()[-1]) == 4.0
                del x, y
                os.write(writer, b"good" if good else b"bad")
            finally:
                os._exit(0)
        os.close(writer)
        self.assertEqual(os.read(reader, 16), b"good")
        os.waitpid(child, 0)
        self.check(mpi_ops._allreduce(x)[:2], [3.0 * self.size] * 2)


class Library(OpTest):
    def test_ranks_that_start_together_build_once(self):
        with tempfile.TemporaryDirectory() as directory:
            names = objects.allgather_object(directory)
            old = os.environ.get("XDG_CACHE_HOME")
            os.environ["XDG_CACHE_HOME"] = names[0]
            try:
                recipe = _op_library.Recipe(_files.header_dir(), _engine.library_for_linking())
                path = _op_library.from_cache(recipe)
                self.assertTrue(recipe.fits(path))
                inodes = objects.allgather_object(path.stat().st_ino)
                self.assertEqual(len(set(inodes)), 1)
                self.assertEqual([each.suffix for each in sorted(path.parent.iterdir())], [".lock", ".so"])
            finally:
                os.environ.pop("XDG_CACHE_HOME")
                if old is not None:
                    os.environ["XDG_CACHE_HOME"] = old
            farandole.numpy.barrier()

    def test_missing_compiler_error_names_the_package(self):
        old = os.environ["PATH"]
        os.environ["PATH"] = "/nonexistent"
        try:
            with self.assertRaisesRegex(ImportError, "apt-get install g"):
                _op_library.built_library.need_compiler(_op_library.TENSORFLOW, "9.9.9")
        finally:
            os.environ["PATH"] = old


if __name__ == "__main__":
    main()
