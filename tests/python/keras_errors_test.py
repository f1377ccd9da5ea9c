# SPDX-License-Identifier: Apache-2.0
"""Errors of Keras' methods under MirroredStrategy when ranks differ: they give the cause, as an error class of the package."""

import os
import shutil
import tempfile

import support

support.need("numpy", "tensorflow", "keras")

import keras
import numpy as np
import tensorflow as tf
from keras_support import KerasTest, X, Y, classifier, sgd, strategy

import farandole.tensorflow as hvd
from farandole import _uncaught, errors


class ErrorsTest(KerasTest):
    def test_methods_raise_the_cause(self):
        self.need_several_ranks()
        with strategy().scope():
            model = classifier(sgd())()
        samples = 64 - 16 * (hvd.rank() == 1)
        for call in (
            lambda: model.fit(X[:samples], Y[:samples], batch_size=16, shuffle=False, verbose=0),
            lambda: model.evaluate(X[:samples], Y[:samples], batch_size=16, verbose=0),
            lambda: model.predict(X[:samples], batch_size=16, verbose=0),
        ):
            with self.assertRaises(errors.Mismatch) as caught:
                call()
            self.assertIsInstance(caught.exception, tf.errors.FailedPreconditionError)
            text = str(caught.exception)
            self.assertIn("rank 1", text)
            self.assertNotIn("node", text)
            self.assertEqual(text.count("\n"), 0)
            self.assertTrue(caught.exception.__suppress_context__)

    def test_a_cache_that_another_rank_writes(self):
        path = os.path.join(hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None), "cache")
        if hvd.rank() == 0:
            with open(f"{path}_0.lockfile", "w") as file:
                file.write("of another rank")
        hvd.barrier()
        with strategy().scope():
            model = classifier(sgd())()
        rows = tf.data.Dataset.from_tensor_slices((X, Y))
        with self.assertRaisesRegex(tf.errors.AlreadyExistsError, "give each rank a path of its own"):
            model.fit(rows.cache(path).batch(8), verbose=0)
        hvd.barrier()
        model.fit(rows.cache(f"{path}-{hvd.rank()}").batch(8), epochs=2, verbose=0)
        hvd.barrier()
        if hvd.rank() == 0:
            shutil.rmtree(os.path.dirname(path))

    def test_random_layers_in_the_data(self):
        """Those of the scope draw other numbers on each rank, and so the ranks' data differ; others draw the same."""
        self.need_several_ranks()
        with strategy().scope():
            model, noise = classifier(sgd())(), keras.layers.GaussianNoise(1.0)
        rows = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
        with self.assertRaisesRegex(errors.Mismatch, r"outside of scope\(\)"):
            model.fit(rows.map(lambda x, y: (noise(x, training=True), y)), verbose=0)
        keras.utils.set_random_seed(3)
        same = keras.layers.GaussianNoise(1.0)
        model.fit(rows.map(lambda x, y: (same(x, training=True), y)), epochs=2, verbose=0)

    def test_random_data_from_before_the_strategy(self):
        """The message says what to do, and is short when nobody catches it."""
        self.need_several_ranks()
        with strategy().scope():
            model = classifier(sgd())()
        x = np.random.default_rng(hvd.rank()).random((64, 6), np.float32)
        try:
            model.fit(x, Y, batch_size=16, verbose=0)
        except errors.Mismatch as error:
            arguments = type(error), error, error.__traceback__
        advice = "make them after MirroredStrategy(), or call keras.utils.set_random_seed(1) first"
        self.assertIn(advice, str(arguments[1]))
        for rank in (0, 1):
            lines = _uncaught.report(*arguments, rank).splitlines()
            self.assertTrue(lines[0].startswith(f"rank {rank}: farandole.errors.Mismatch: The ranks read different data"))
            if rank == 0:
                self.assertIn(advice, lines[0])
                self.assertRegex(lines[1], r'File ".*keras_errors_test.py", line \d+, in test_random')
                self.assertEqual(lines[2:], ["    model.fit(x, Y, batch_size=16, verbose=0)"])
            else:
                self.assertRegex(lines[0], r" … \(\S*keras_errors_test.py:\d+\)$")
                self.assertEqual(len(lines), 1)

    def test_models_that_differ(self):
        self.need_several_ranks()
        with self.assertRaises(errors.Mismatch) as caught, strategy().scope():
            keras.Sequential([keras.Input((6,)), keras.layers.Dense(8 - (hvd.rank() == 1), name="odd")])
        shape = (6, 7) if hvd.rank() == 1 else (6, 8)
        text = str(caught.exception)
        self.assertIn(f"while rank {hvd.rank()} made the variable", text)
        self.assertIn(f"odd/kernel' of shape {shape}", text)
        self.assertNotIn("(unnamed)", text)


if __name__ == "__main__":
    support.main()
