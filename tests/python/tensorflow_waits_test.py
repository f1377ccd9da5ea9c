# SPDX-License-Identifier: Apache-2.0
"""If ranks wait for each other, eagerly or in functions, all ranks raise a Mismatch. For a late rank, the others wait."""

import os

os.environ["FARANDOLE_WARN_AFTER"] = "1.2"  # so that ranks stand still after a sixth of it

import tempfile  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402

import tensorflow_support as support  # noqa: E402

import tensorflow as tf  # noqa: E402

import farandole.numpy  # noqa: E402
import farandole.tensorflow as hvd  # noqa: E402
from farandole import errors  # noqa: E402

SOON = 15.0  # seconds within which every rank hears of it; TensorFlow traces a function meanwhile
LATE = 2.5  # seconds, more than after which ranks warn


def reduced(name, value=1.0):
    return hvd.allreduce(tf.fill([4], value), op=hvd.Sum, name=name)


def compute(seconds, value):
    """`value`, after the graph has computed for so long."""
    end = tf.timestamp() + seconds
    matrix = tf.while_loop(
        lambda matrix: tf.timestamp() < end,
        lambda matrix: (tf.linalg.matmul(matrix, matrix) / 64.0,),
        [tf.ones([64, 64])],
    )[0]
    return value + 0.0 * matrix[0, 0]


class WaitsTest(support.OpTest):
    def setUp(self):
        super().setUp()
        if self.size < 2:
            self.skipTest("needs two ranks")
        self.odd = self.rank == self.size - 1

    def mismatch(self, function, *texts):
        began = time.monotonic()
        with self.assertRaises(errors.Mismatch) as raised, hvd.converted_errors():
            function()
        self.assertLess(time.monotonic() - began, SOON)
        self.assertIn("every rank waits for a name that its peers have not submitted", str(raised.exception))
        for text in texts:
            self.assertIn(text, str(raised.exception))
        self.goes_on()
        self.check(tf.function(lambda: reduced("next"))(), [self.size] * 4)

    def test_other_names(self):
        name = "mine" if self.odd else "yours"
        self.mismatch(tf.function(lambda: reduced(name)), "'mine'", "'yours'", "rank 0", f"rank {self.size - 1}")

    def test_known_names(self):
        functions = [tf.function(lambda name=name: reduced(name)) for name in ("one", "two")]
        for function in functions:
            self.check(function(), [self.size] * 4)
        self.mismatch(functions[self.odd], "'one'", "'two'")

    def test_a_function_and_a_call(self):
        in_function = tf.function(lambda: reduced("in_function"))
        self.mismatch((lambda: reduced("in_call")) if self.odd else in_function, "'in_function'", "'in_call'")

    def test_a_call_beside_other_threads(self):
        """They could submit something, so the call alone does not show that its rank is blocked."""
        stop = threading.Event()
        thread = threading.Thread(target=stop.wait)
        thread.start()
        try:
            self.mismatch(lambda: reduced("a" if self.odd else "b"), "'a'", "'b'")
            self.mismatch(lambda: farandole.numpy.allreduce([1.0], name="c" if self.odd else "d"), "'c'", "'d'")
        finally:
            stop.set()
            thread.join()

    def test_pairs_that_cross(self):
        """Each rank waits for the other's first before it submits its second."""
        first, second = ("x", "y") if self.odd else ("y", "x")

        @tf.function
        def crossing():
            with tf.control_dependencies([reduced(first)]):
                return reduced(second)

        self.mismatch(crossing, "'x'", "'y'")

    def test_part_of_a_function(self):
        """One of two is done, the other is not."""

        @tf.function
        def function():
            return reduced("both"), reduced("left" if self.odd else "right")

        self.mismatch(function, "'left'", "'right'")
        self.mismatch(function, "'left'", "'right'")

    def test_a_rank_that_computes(self):
        """The odd rank submits "early" and computes before "late"; its peers submit "early" only after "late"."""

        @tf.function
        def function():
            if self.odd:
                with tf.control_dependencies([tf.constant(1.0)]):
                    return reduced("early"), reduced("late", compute(LATE, 1.0))
            late = reduced("late")
            with tf.control_dependencies([late]):
                return reduced("early"), late

        for result in function():
            self.check(result, [self.size] * 4)

    def test_a_rank_that_prepares_data(self):
        """In Python, with no request."""
        function = tf.function(lambda: reduced("batch"))
        end = time.monotonic() + LATE
        while self.odd and time.monotonic() < end:
            sum(range(10000))
        self.check(function(), [self.size] * 4)

    def test_a_rank_that_waits_for_a_file(self):
        function = tf.function(lambda: reduced("batch"))
        path = hvd.broadcast_object(os.path.join(tempfile.mkdtemp(), "file") if self.rank == 0 else None)
        if self.rank == 0:
            threading.Timer(LATE, lambda: open(path, "w").close()).start()
        while self.odd and not os.path.exists(path):
            time.sleep(0.01)
        self.check(function(), [self.size] * 4)


if __name__ == "__main__":
    support.main()
