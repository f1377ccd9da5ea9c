# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's error codes, eagerly, in a tf.function, in a session and in Keras, are the same as with Horovod."""

import importlib
import importlib.util
from unittest import mock

from tensorflow_support import OpTest, main

import tensorflow as tf

import farandole.numpy as collectives
import farandole.tensorflow as hvd
from farandole import _lifecycle, _uncaught, errors
from farandole.tensorflow import _errors

FAILED, INVALID = tf.errors.FailedPreconditionError, tf.errors.InvalidArgumentError


def eagerly(call):
    return call()


def in_function(call):
    return tf.function(call)()


def in_session(call):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return session.run(call())


def unknown_rank(tensor):
    """The tensor without a shape known to graphs: errors of the shape are found when the op runs."""
    return tensor if tf.executing_eagerly() else tf.compat.v1.placeholder_with_default(tensor, shape=None)


class TextTest(OpTest):
    def described(self, call):
        try:
            call()
        except Exception as error:
            return _uncaught.described(type(error), error, error.__traceback__)
        raise AssertionError("raised nothing")

    def test_causes_in_functions(self):
        """The error on other ranks has the whole cause, and the line in the program instead of AutoGraph's copy."""

        @tf.function
        def step(x):
            if x.shape.rank == 1:
                raise ValueError("a cause\n\n  of several lines")
            return x

        line = step.python_function.__code__.co_firstlineno + 3
        text = self.described(lambda: step(tf.ones(1)))
        self.assertEqual(text, f"ValueError: a cause\n\n  of several lines ({__file__}:{line})")

    def test_reports_that_replace_tracebacks(self):
        """Only those of this package's errors, which say what to do."""

        def report(raise_error, rank=1):
            try:
                raise_error()
            except Exception as error:
                return _uncaught.report(type(error), error, error.__traceback__, rank)
            raise AssertionError("raised nothing")

        def raised(error):
            raise error

        def chained():
            try:
                raised(KeyError("a"))
            except KeyError:
                raised(errors.InvalidArgument("text"))

        self.assertRegex(report(lambda: raised(errors.InvalidArgument("text"))), r"^rank 1: .*InvalidArgument: text\n  File")
        self.assertEqual(report(lambda: raised(errors.Mismatch("text"))).count("\n"), 1)
        for other in (lambda: raised(KeyError("a")), lambda: raised(errors.InternalError("text")), chained):
            self.assertIsNone(report(other))
        with mock.patch.dict("os.environ", {"FARANDOLE_LOG": "debug"}):
            self.assertIsNone(report(lambda: raised(errors.Mismatch("text"))))

    def test_long_causes_keep_both_ends(self):
        text = _lifecycle._shortened(("begins " + "\u00e9" * 1000 + " ends").encode()).decode()
        self.assertTrue(text.startswith("begins \u00e9") and text.endswith("\u00e9 ends"), text)
        self.assertRegex(text, r" \[… \d+ bytes …\] ")
        self.assertEqual(_lifecycle._shortened(b"short"), b"short")

    def test_functions_that_xla_compiles(self):
        """They are refused when they are traced, on all ranks alike."""
        for call in (
            lambda: hvd.allreduce(tf.ones(1)),
            lambda: hvd.allgather(tf.ones(1)),
            lambda: hvd.mpi_ops.join(),
            lambda: tf.function(lambda: hvd.allreduce(tf.ones(1)))(),
        ):
            with self.assertRaisesRegex(errors.Unsupported, "jit_compile=True"):
                tf.function(call, jit_compile=True)()
        self.goes_on()


class CodesTest(OpTest):
    def setUp(self):
        super().setUp()
        if self.size < 2:
            self.skipTest("needs two ranks")
        self.odd = self.rank == self.size - 1

    def check_code(self, call, code, kind):
        for way in (eagerly, in_function, in_session):
            with self.subTest(way=way.__name__):
                with self.assertRaises(code) as caught:
                    way(call)
                self.assertEqual(isinstance(caught.exception, kind), way is eagerly)
                text = (_errors.converted(caught.exception) or caught.exception).message
                self.goes_on()  # one rank alone may have seen the error until now
                with self.assertRaises(kind) as caught, hvd.converted_errors():
                    way(call)
                self.assertIsInstance(caught.exception, code)
                self.assertEqual(caught.exception.message, text)
                self.assertNotIn("farandole.errors", text)
                self.assertNotIn("node", text)
                self.goes_on()

    def test_disagreements(self):
        calls = {
            "shape": lambda: hvd.allreduce(tf.ones([2 + self.rank]), name="shape"),
            "type": lambda: hvd.allreduce(tf.ones([2], tf.float64 if self.odd else tf.float32), name="type"),
            "operation": lambda: hvd.allreduce(tf.ones([2]), op=hvd.Max if self.odd else hvd.Sum, name="operation"),
            "root": lambda: hvd.broadcast(tf.ones([2]), 1 if self.odd else 0, name="root"),
            "row": lambda: hvd.alltoall(tf.ones([self.size, 2 + self.odd]), name="row"),
        }
        for what, call in calls.items():
            with self.subTest(what):
                self.check_code(call, FAILED, errors.Mismatch)

    def test_invalid_call_on_one_rank_fails_everywhere(self):
        def call():
            splits = [9 if self.odd else 1] * self.size
            return hvd.alltoall(tf.ones([self.size]), splits=tf.constant(splits), name="splits")

        kinds = (INVALID, errors.InvalidArgument) if self.odd else (FAILED, errors.Mismatch)
        self.check_code(call, *kinds)

    def test_invalid_arguments(self):
        calls = {
            "splits": lambda: hvd.alltoall(tf.ones([self.size]), splits=tf.constant([9] * self.size), name="splits"),
            "equal parts": lambda: hvd.alltoall(tf.ones([self.size + 1]), name="equal parts"),
            "scalar": lambda: hvd.alltoall(unknown_rank(tf.constant(1.0)), name="scalar"),
            "root": lambda: hvd.broadcast(tf.ones([2]), self.size, name="root"),
            "average of bool": lambda: hvd.allreduce(tf.constant([True]), name="bool"),
            "adasum of integers": lambda: hvd.allreduce(tf.constant([1]), op=hvd.Adasum, name="adasum"),
        }
        for what, call in calls.items():
            with self.subTest(what):
                self.check_code(call, INVALID, errors.InvalidArgument)

    def test_splits_that_are_no_integers(self):
        with self.assertRaises(INVALID) as caught:
            hvd.alltoall(tf.ones([self.size]), splits=tf.ones([self.size]))
        self.assertIsInstance(caught.exception, errors.InvalidArgument)
        self.goes_on()

    def test_a_rank_that_is_not_in_the_process_set(self):
        first = hvd.add_process_set([0])
        if self.rank > 0:
            for way in (eagerly, in_function, in_session):
                with self.subTest(way=way.__name__), self.assertRaises(INVALID):
                    way(lambda: hvd.allreduce(tf.ones([2]), name="others", process_set=first))
        self.goes_on()
        hvd.remove_process_set(first)

    def test_a_name_that_is_pending(self):
        if self.rank == 0:
            pending = collectives.allreduce_async([1.0], op=hvd.Sum, name="twice")
            for way in (eagerly, in_function, in_session):
                with self.subTest(way=way.__name__), self.assertRaises(INVALID) as caught:
                    way(lambda: hvd.allreduce(tf.ones([1]), name="twice"))
                self.assertIsInstance(_errors.converted(caught.exception) or caught.exception, errors.DuplicateName)
            hvd.barrier(name="both")
        else:
            hvd.barrier(name="both")
            pending = collectives.allreduce_async([1.0], op=hvd.Sum, name="twice")
        self.check(pending.wait(), [self.size])

    def test_in_keras(self):
        """Keras converts a layer's exception into another exception."""
        rank = self.rank
        packages = [name for name in ("keras", "tf_keras") if importlib.util.find_spec(name)]
        for keras in map(importlib.import_module, packages):

            class Disagreeing(keras.layers.Layer):
                def call(self, inputs):
                    return inputs + tf.reduce_sum(hvd.allreduce(tf.ones([2 + rank]), name="in_a_layer"))

                def compute_output_shape(self, shape):
                    return shape

            model = keras.Sequential([Disagreeing()])
            model.compile("sgd", "mse")
            rows = tf.ones([4, 1])
            for call in (lambda: model(rows), lambda: model.evaluate(rows, rows, verbose=0)):
                with self.subTest(keras.__name__):
                    with self.assertRaises(FAILED):
                        call()
                    with self.assertRaises(errors.Mismatch), hvd.converted_errors():
                        call()
            self.goes_on()


class TextsTest(OpTest):
    def test_errors_without_a_payload(self):
        text = "farandole.errors.Timeout: rank 1 is late\n\t [[{{node late}}]] [Op:__inference_1]"
        late = _errors.converted(tf.errors.AbortedError(None, None, text))
        self.assertIsInstance(late, errors.HorovodInternalError)
        self.assertIsInstance(late, tf.errors.AbortedError)
        self.assertEqual(str(late), "rank 1 is late")
        self.assertIsNone(_errors.converted(tf.errors.AbortedError(None, None, "another error")))


if __name__ == "__main__":
    main()
