# SPDX-License-Identifier: Apache-2.0
"""The comparison that keras_programs uses finds a wrong result of a program, on all ranks."""

import pathlib
import sys

import support

support.need("numpy", "tensorflow", "keras")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "keras_programs"))

import comparison
import numpy as np
import tensorflow as tf

import farandole.tensorflow as hvd


def verdict(function, may_be_nan=False):
    """The errors of a program. Checks that all ranks return the same errors."""
    each = comparison.Program(function, "test", 1e-5, 1e-6, False, (2, 3), may_be_nan)
    lines = comparison.check(each)
    assert hvd.allgather_object(lines) == [lines] * hvd.size()
    return lines


def is_together():
    return tf.distribute.has_strategy()


class ComparisonTest(support.RankedTest):
    def test_programs_that_give_the_same(self):
        def same(scope):
            random = tf.random.normal([2, 3])  # of the same seed
            half = tf.constant([0.5, 2.0], tf.bfloat16)
            return {"deep": [random, (1, 2.5, None, "text", np.array(["a"]))], "empty": np.zeros((0, 2)), "half": half}

        self.assertEqual(verdict(same), [])

    def test_a_number_that_differs(self):
        def differs(scope):
            with scope():
                return {"weights": [np.ones(2), np.array([[1.0, 4.0 if is_together() else 2.0]])]}

        (line,) = verdict(differs)
        self.assertIn("weights[1][0, 1]: expected 2, got 4 (off by 2, relative 1, 1 of 2 differ)", line)

    def test_missing_values_and_other_shapes_differ(self):
        def differs(scope):
            with scope():
                if is_together():
                    return {"shape": np.ones(2), "text": "y"}
            return {"a": 1, "shape": [[1.0]], "text": "x"}

        self.assertEqual(
            verdict(differs),
            [
                "a: is missing",
                "shape[0][0]: is missing",
                "shape: is not there in one process",
                "text: expected 'x', got 'y'",
            ],
        )

    def test_ranks_that_differ_in_a_bit(self):
        if hvd.size() == 1:
            self.skipTest("needs several ranks")

        def differs(scope):
            with scope():
                return {"value": np.float32(1 + 1e-7 * hvd.rank() * is_together())}

        self.assertEqual(
            [line.split(":")[0] for line in verdict(differs)],
            [f"rank {rank} has not the bits of rank 0" for rank in range(1, hvd.size())],
        )

    def test_near_zero_is_compared_with_the_largest_value(self):
        def differs(scope):
            with scope():
                return {"array": np.array([1000.0, 1e-4 * is_together()]), "number": 1e-4 * is_together()}

        (line,) = verdict(differs)
        self.assertTrue(line.startswith("number:"), line)

    def test_nan_is_no_number(self):
        def is_nan(scope):
            return {"loss": [1.0, float("nan")]}

        self.assertEqual(verdict(is_nan), ["loss[1]: one process gives NaN"])
        self.assertEqual(verdict(is_nan, may_be_nan=True), [])

    def test_a_program_that_raises(self):
        def raises(scope):
            with scope():
                if is_together():
                    raise ValueError("no such thing")
            return {"value": 1}

        everywhere = [f"rank {rank} raised ValueError: no such thing" for rank in range(hvd.size())]
        self.assertEqual(verdict(raises), everywhere)

        def always_raises(scope):
            raise KeyError("it")

        self.assertEqual(verdict(always_raises), ["fails in one process: KeyError: 'it'"])

    def test_a_program_that_raises_on_one_rank(self):
        def raises(scope):
            with scope():
                if is_together() and hvd.rank() == 0:
                    raise ValueError("only here")
            return {"value": 1}

        self.assertEqual(verdict(raises), ["rank 0 raised ValueError: only here"])

    def test_a_directory_is_shared_together(self):
        def writes(scope):
            path = pathlib.Path(comparison.directory())
            with scope():
                if not is_together() or hvd.rank() == 0:
                    (path / "file").write_text("text")
                if is_together():
                    hvd.barrier()
            return {"text": (path / "file").read_text()}

        self.assertEqual(verdict(writes), [])

    def test_a_loss_over_parts(self):
        rows = np.arange(7.0, dtype=np.float32)[:, np.newaxis]

        def largest(y_true, y_pred):
            return tf.reduce_max(y_pred)

        parts = np.array_split(rows, hvd.size())  # the first ones have one more
        expected = sum(part.max() * len(part) for part in parts) / len(rows)
        self.assertAlmostEqual(float(comparison.over_parts(largest)(rows, rows)), expected, places=5)


if __name__ == "__main__":
    support.main()
