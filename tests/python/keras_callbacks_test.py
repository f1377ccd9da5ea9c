# SPDX-License-Identifier: Apache-2.0
"""Callbacks of Keras 3 under MirroredStrategy: which rank writes, which rank decides, and saved models."""

import atexit
import contextlib
import importlib.util
import io
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

import support

support.need("numpy", "tensorflow", "keras")

import keras
import numpy as np
import tensorflow as tf
from keras_support import KerasTest, X, Y, classifier, sgd, strategy

import farandole.tensorflow as hvd
from farandole.tensorflow.strategy import _verbosity

WITHOUT_FARANDOLE = """
import json, sys
import keras, numpy
model = keras.models.load_model(sys.argv[1])
assert not any(name.startswith("farandole") for name in sys.modules)
rows = model.predict(numpy.load(sys.argv[2]), verbose=0)
print(json.dumps([type(model.optimizer).__module__, int(model.optimizer.iterations.numpy()), rows.tolist()]))
"""


class CallbacksTest(KerasTest):
    def setUp(self):
        super().setUp()
        # One directory for all ranks.
        self.folder = Path(hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None))
        if hvd.rank() == 0:
            atexit.register(shutil.rmtree, self.folder, ignore_errors=True)

    def model(self, **arguments):
        with strategy().scope():
            return classifier(sgd(), **arguments)()

    def fit(self, model, *callbacks, **arguments):
        options = {"batch_size": 16, "shuffle": False, "verbose": 0, **arguments}
        return model.fit(X, Y, callbacks=list(callbacks), **options)

    # ---- Progress

    def test_only_the_first_rank_shows_progress(self):
        self.need_several_ranks()
        model, is_first = self.model(), hvd.rank() == 0
        calls = (
            lambda **options: model.fit(X, Y, batch_size=16, epochs=2, **options),
            lambda **options: model.evaluate(X, Y, batch_size=16, **options),
            lambda **options: model.predict(X, batch_size=16, **options),
        )
        # Text of each output: a bar, which moves, on a terminal; a line otherwise.
        for is_terminal, expected in ((True, "\x1b[1m4/4\x1b[0m"), (False, "\n4/4 - ")):
            for call in calls:
                with mock.patch.object(_verbosity, "_is_on_terminal", lambda is_terminal=is_terminal: is_terminal):
                    shown = self.output_of(call)
                    self.assertEqual(expected in f"\n{shown}", is_first, shown)
                    self.assertEqual(shown == "", not is_first)
                    self.assertIn("\n4/4 - ", f"\n{self.output_of(lambda: call(verbose=2))}")
                    self.assertEqual(self.output_of(lambda: call(verbose=0)), "")

    @staticmethod
    def output_of(call):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            call()
        return output.getvalue()

    def test_a_pipe_is_no_terminal(self):
        """Also below a launcher that gives each rank a pseudo-terminal."""
        with mock.patch("sys.stdout", mock.Mock(isatty=lambda: True)):
            for target, expected in (("/dev/pts/3", True), ("pipe:[7]", False), ("/log", False)):
                with mock.patch("os.readlink", lambda _, target=target: target):
                    with mock.patch.dict("os.environ", {"OMPI_COMM_WORLD_RANK": "0"}):
                        self.assertEqual(_verbosity._is_on_terminal(), expected)
        with mock.patch("sys.stdout", io.StringIO()):
            self.assertFalse(_verbosity._is_on_terminal())

    # ---- Files

    def test_only_the_first_rank_writes(self):
        class Saved(keras.callbacks.ModelCheckpoint):
            """Counts on each rank the files that the rank would save, and the rank's decisions."""

            decisions = 0

            def _should_save_model(self, *args):
                self.decisions += 1
                return super()._should_save_model(*args)

        # Each rank names its own files: those of others than the first must not be there.
        own = self.folder / f"rank{hvd.rank()}"
        best = Saved(str(own / "best.keras"), monitor="val_loss", save_best_only=True)
        weights = keras.callbacks.ModelCheckpoint(
            str(own / "batch{batch}.weights.h5"), save_weights_only=True, save_freq=4
        )
        log = keras.callbacks.CSVLogger(str(self.folder / f"log{hvd.rank()}.csv"))
        writers = [best, weights, log]
        has_board = importlib.util.find_spec("tensorboard") is not None
        if has_board:
            writers.append(keras.callbacks.TensorBoard(str(own / "board"), histogram_freq=1, update_freq=2))
        model = self.model()
        self.fit(model, *writers, epochs=3, validation_data=(X, Y))
        hvd.barrier()
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        self.assertEqual({path.name for path in self.folder.iterdir() if path.is_file()}, {"log0.csv"})
        self.assertTrue((self.folder / "rank0" / "best.keras").exists())
        self.assertTrue(list((self.folder / "rank0").glob("*.weights.h5")))
        self.assertEqual(bool(list((self.folder / "rank0").rglob("events*"))), has_board)
        for rank in range(1, hvd.size()):
            self.assertFalse([path for path in files if f"rank{rank}" in path.parts])
        self.assertEqual(set(hvd.allgather_object((best.decisions, best.best))), {(3, best.best)})
        loaded = keras.models.load_model(self.folder / "rank0" / "best.keras")
        np.testing.assert_allclose(loaded.evaluate(X, Y, verbose=0)[0], best.best, rtol=1e-4)

    def test_all_ranks_can_load_what_was_saved_in_training(self):
        path = str(self.folder / "last.weights.h5")
        model = self.model()
        self.fit(model, keras.callbacks.ModelCheckpoint(path, save_weights_only=True), epochs=2)
        expected = model.get_weights()
        model.set_weights([np.zeros_like(weight) for weight in expected])
        model.load_weights(path)
        for mine, saved in zip(model.get_weights(), expected):
            np.testing.assert_array_equal(mine, saved)

    def test_saved_models_load_without_farandole(self):
        with strategy().scope():
            model = keras.Sequential(
                [keras.Input((6,)), keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dense(3)]
            )
            model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        self.fit(model)
        expected = model.predict(X, verbose=0)
        if hvd.rank() == 0:  # nobody else takes part
            model.save(self.folder / "model.keras")
            np.save(self.folder / "x.npy", X)
            files = [str(self.folder / name) for name in ("model.keras", "x.npy")]
            command = [sys.executable, "-c", WITHOUT_FARANDOLE, *files]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            module, iterations, rows = json.loads(done.stdout.splitlines()[-1])
            self.assertTrue(module.startswith("keras"))
            self.assertEqual(iterations, 4)
            np.testing.assert_allclose(rows, expected, rtol=1e-4, atol=1e-6)
            model.export(str(self.folder / "exported"), verbose=False)
            exported = tf.saved_model.load(str(self.folder / "exported"))
            np.testing.assert_allclose(exported.serve(tf.constant(X)).numpy(), expected, rtol=1e-4, atol=1e-6)
        hvd.barrier()
        with strategy().scope():
            again = keras.models.load_model(self.folder / "model.keras")
        self.fit(again)
        self.assert_same_on_all_ranks(again.get_weights())

    def test_tensorflow_checkpoints(self):
        model = self.model()
        self.fit(model)
        expected = model.get_weights()
        # All ranks save, as TensorFlow demands of any strategy: values that are aggregated over the ranks are read.
        path = tf.train.Checkpoint(model=model).save(str(self.folder / f"rank{hvd.rank()}" / "checkpoint"))
        model.set_weights([np.zeros_like(weight) for weight in expected])
        tf.train.Checkpoint(model=model).restore(path)
        for mine, saved in zip(model.get_weights(), expected):
            np.testing.assert_array_equal(mine, saved)

    # ---- Resuming

    def interrupted(self, folder, save_freq):
        class Interrupt(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                self.batches = getattr(self, "batches", 0) + 1
                if self.batches == 10:  # of 4 in each epoch
                    raise InterruptedError

        backup = keras.callbacks.BackupAndRestore(str(folder), save_freq=save_freq)
        model = self.model()
        start = model.get_weights()
        with self.assertRaises(InterruptedError):
            self.fit(model, backup, Interrupt(), epochs=4)
        hvd.barrier()
        return start

    def resumed(self, folder, epochs):
        class Epochs(keras.callbacks.Callback):
            seen = []

            def on_epoch_begin(self, epoch, logs=None):
                self.seen = [*self.seen, epoch]

        model, seen = self.model(), Epochs()
        self.fit(model, keras.callbacks.BackupAndRestore(str(folder)), seen, epochs=epochs)
        return model, seen.seen

    def test_backup_and_restore(self):
        start = self.interrupted(self.folder / "shared", "epoch")
        model, seen = self.resumed(self.folder / "shared", 4)
        self.assertEqual(seen, [2, 3])
        self.assertFalse((self.folder / "shared").exists())
        self.assert_same_on_all_ranks(model.get_weights())
        whole = self.model()
        whole.set_weights(start)
        self.fit(whole, epochs=4)
        for mine, expected in zip(model.get_weights(), whole.get_weights()):
            np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-6)

    def test_backup_in_a_folder_not_seen_by_other_ranks(self):
        folder = self.folder / f"of{hvd.rank()}"
        self.interrupted(folder, 3)
        self.assertEqual(folder.exists(), hvd.rank() == 0)
        model, seen = self.resumed(folder, 4)
        self.assertEqual(set(map(tuple, hvd.allgather_object(seen))), {tuple(seen)})
        self.assertGreater(seen[0], 0)
        self.assert_same_on_all_ranks(model.get_weights())

    # ---- Decisions

    def test_early_stopping_and_learning_rates(self):
        model = self.model()
        stopping = keras.callbacks.EarlyStopping("loss", min_delta=10.0, patience=2, restore_best_weights=True)
        reducing = keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=10.0)
        history = self.fit(model, stopping, reducing, epochs=10)
        rate = round(float(model.optimizer.learning_rate), 6)
        decided = (len(history.history["loss"]), stopping.stopped_epoch, rate)
        self.assertEqual(decided, (3, 2, 0.025))
        self.assertEqual(set(hvd.allgather_object(decided)), {decided})
        self.assert_same_on_all_ranks(model.get_weights())

    def test_one_rank_that_stops_after_a_batch_stops_all(self):
        class Stop(keras.callbacks.Callback):
            batches = 0

            def on_train_batch_end(self, batch, logs=None):
                self.batches += 1
                if hvd.rank() == hvd.size() - 1 and self.batches == 6:
                    self.model.stop_training = True

        model, stop = self.model(), Stop()
        history = self.fit(model, stop, epochs=5)
        # The others hear of it with the next batch, the third of the second epoch.
        self.assertEqual((stop.batches, len(history.history["loss"])), (7 if hvd.size() > 1 else 6, 2))
        self.fit(model, epochs=1)  # it was for that training only

    def test_one_rank_that_stops_after_an_epoch_stops_all(self):
        class Stop(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                if hvd.rank() == hvd.size() - 1 and epoch == 1:
                    self.model.stop_training = True

        self.assertEqual(len(self.fit(self.model(), Stop(), epochs=5).history["loss"]), 2)

    def test_terminate_on_nan_of_one_rank(self):
        model = self.model()
        x = X.copy()
        x[63] = np.nan  # only the last rank's loss is NaN at first
        history = model.fit(
            x, Y, batch_size=64, epochs=5, shuffle=False, verbose=0, callbacks=[keras.callbacks.TerminateOnNaN()]
        )
        self.assertLessEqual(len(history.history["loss"]), 2)
        self.assertEqual(len(set(hvd.allgather_object(len(history.history["loss"])))), 1)


if __name__ == "__main__":
    support.main()
