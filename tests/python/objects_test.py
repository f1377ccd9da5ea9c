# SPDX-License-Identifier: Apache-2.0
"""Collectives of objects: types that the safe format supports, types that all ranks refuse, and pickles on demand."""

import datetime
import math

import support

support.need("numpy")

import numpy as np

import farandole
from farandole import errors, objects

EVERYTHING = {
    "none": None,
    "numbers": [True, -3, 2**80, 0.1, math.inf, -0.0, 1 - 2j],
    "texts": ("", "Größe", b"\x00\xff", bytearray(b"abc")),
    3: {1, 2},
    (1, "a"): frozenset("xy"),
    "nested": [{"list": [[], ({},)]}, {"array": 1}],
}


class SafeFormatTest(support.RankedTest):
    def test_objects_of_plain_parts(self):
        copy = objects.loads(objects.dumps(EVERYTHING))
        self.assertEqual(copy, EVERYTHING)
        self.assertEqual([type(each) for each in copy["numbers"]], [type(each) for each in EVERYTHING["numbers"]])
        self.assertEqual(math.copysign(1, copy["numbers"][5]), -1)
        self.assertIsInstance(copy["texts"], tuple)
        self.assertTrue(math.isnan(objects.loads(objects.dumps(math.nan))))

    def test_arrays(self):
        arrays = [
            np.arange(6, dtype=np.int16).reshape(2, 3),
            np.array(2.5),
            np.empty((0, 4), np.float32),
            np.arange(4.0)[::2],
            np.array(["ab", "c"]),
            np.array([1, 2], ">i4"),
            np.array(["2024-01-01"], "datetime64[D]"),
            np.array([True, False]),
        ]
        for array in arrays:
            copy = objects.loads(objects.dumps(array))
            self.assertEqual((copy.dtype, copy.shape), (array.dtype, array.shape))
            np.testing.assert_array_equal(copy, array)
            self.assertTrue(copy.flags.writeable)
        scalar = objects.loads(objects.dumps(np.float32(1.5)))
        self.assertIs(type(scalar), np.float32)

    def test_bfloat16(self):
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("needs ml_dtypes")
        copy = objects.loads(objects.dumps(np.array([1.5, -2], ml_dtypes.bfloat16)))
        self.assertEqual(copy.dtype, ml_dtypes.bfloat16)
        self.assertEqual(copy.tolist(), [1.5, -2])

    def test_objects_that_cannot_be_sent(self):
        for wrong in (datetime.date(2024, 1, 1), object(), [lambda: 0], np.array([None]), np.zeros(1, "i4,f4")):
            with self.assertRaisesRegex(errors.InvalidArgument, "pickle=True"):
                objects.dumps(wrong)


class BetweenRanksTest(support.RankedTest):
    def test_broadcast(self):
        for root in range(farandole.size()):
            mine = {**EVERYTHING, "rank": farandole.rank()}
            self.assertEqual(objects.broadcast_object(mine, root), {**EVERYTHING, "rank": root})

    def test_allgather(self):
        mine = [np.full(farandole.rank(), 7), farandole.rank()]
        everything = objects.allgather_object(mine)
        self.assertEqual([each[1] for each in everything], list(range(farandole.size())))
        self.assertEqual([each[0].tolist() for each in everything], [[7] * rank for rank in range(farandole.size())])

    def test_unsendable_object_of_the_root_fails_all_ranks(self):
        with self.assertRaisesRegex(errors.InvalidArgument, "rank 0: an object of type datetime.date"):
            objects.broadcast_object(datetime.date(2024, 1, 1) if farandole.rank() == 0 else None)
        self.assertEqual(objects.broadcast_object("next"), "next")

    def test_pickles_on_demand_only(self):
        day = datetime.date(2024, 1, 1)
        self.assertEqual(objects.broadcast_object(day, pickle=True), day)
        self.assertEqual(objects.allgather_object(day, pickle=True), [day] * farandole.size())
        with self.assertRaisesRegex(errors.Unsupported, "pickle=True"):
            objects.loads(objects.dumps(day, pickle=True))


if __name__ == "__main__":
    support.main()
