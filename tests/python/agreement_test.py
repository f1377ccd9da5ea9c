# SPDX-License-Identifier: Apache-2.0
"""Arguments on which ranks must agree. Every disagreement is a Mismatch on all ranks. An invalid value is an
InvalidArgument on its rank, and a Mismatch that names the value on all other ranks. In both cases the job goes on."""

import time

import support

support.need("numpy")

import numpy as np

import farandole
import farandole.numpy as collectives
from farandole import errors, objects

SOON = 5.0  # seconds within which every rank hears of it

ONES = np.ones(6)
NEVER_A_NUMBER = float("nan")


def argument(function, **arguments):
    """A call of `function` on an array. Each argument is a pair: the odd rank's value, and all other ranks' value."""

    def call(odd, name):
        chosen = {key: values[0 if odd else 1] for key, values in arguments.items()}
        tensor = chosen.pop("tensor", ONES)
        return function(tensor, name=name, **chosen)

    return call


# Calls about which the ranks disagree, each with a part of the expected error.
MISMATCHES = {
    "allreduce: shape": (argument(collectives.allreduce, tensor=(np.ones(3), ONES)), r"f64\[3\].*f64\[6\]|f64\[6\].*f64\[3\]"),
    "allreduce: type": (argument(collectives.allreduce, tensor=(ONES.astype("f4"), ONES)), "f32.*f64|f64.*f32"),
    "allreduce: op": (argument(collectives.allreduce, op=(farandole.Sum, farandole.Max)), "max"),
    "allreduce: Average and Sum": (argument(collectives.allreduce, average=(True, False)), "average"),
    "allreduce: Adasum": (argument(collectives.allreduce, op=(farandole.Adasum, farandole.Sum)), "adasum"),
    "allreduce: prescale_factor": (argument(collectives.allreduce, prescale_factor=(2.0, 1.0)), "prescale 2"),
    "allreduce: postscale_factor": (argument(collectives.allreduce, postscale_factor=(2.0, 1.0)), "postscale 2"),
    "grouped_allreduce: number of arrays": (
        argument(collectives.grouped_allreduce, tensor=([ONES], [ONES, ONES])),
        r"f64\[6\] f64\[6\]",
    ),
    "grouped_allreduce: order": (
        argument(collectives.grouped_allreduce, tensor=([ONES, ONES[:2]], [ONES[:2], ONES])),
        r"f64\[6\] f64\[2\]",
    ),
    "allgather: shape of a row": (argument(collectives.allgather, tensor=(np.ones((2, 3)), np.ones((2, 2)))), r"f64\[3\]"),
    "grouped_allgather: number": (argument(collectives.grouped_allgather, tensor=([ONES], [ONES, ONES])), "f64"),
    "broadcast: root_rank": (argument(collectives.broadcast, root_rank=(1, 0)), "from root 1"),
    "broadcast: shape": (argument(collectives.broadcast, root_rank=(0, 0), tensor=(np.ones(3), ONES)), r"f64\[3\]"),
    "broadcast_: root_rank": (
        lambda odd, name: collectives.broadcast_(ONES.copy(), 1 if odd else 0, name=name),
        "from root 1",
    ),
    "alltoall: shape of a row": (
        lambda odd, name: collectives.alltoall(np.ones((farandole.size(), 3 if odd else 2)), name=name),
        r"f64\[3\]",
    ),
    "reducescatter: op": (argument(collectives.reducescatter, op=(farandole.Sum, farandole.Max)), "max"),
    "reducescatter: prescale_factor": (argument(collectives.reducescatter, prescale_factor=(2.0, 1.0)), "prescale 2"),
    "broadcast_object: root_rank": (argument(objects.broadcast_object, root_rank=(1, 0)), "object of root 1"),
    "broadcast_object: pickle": (argument(objects.broadcast_object, pickle=(True, False)), "pickle=True"),
    "allgather_object: pickle": (argument(objects.allgather_object, pickle=(True, False)), "pickle=True"),
    "add_process_set: ranks": (lambda odd, name: farandole.add_process_set([0] if odd else [1]), "add_process_set"),
    "add_process_set: ranks of a known set": (
        lambda odd, name: farandole.add_process_set(range(farandole.size()) if odd else [1]),
        "add_process_set",
    ),
}

# Calls that are invalid on the odd rank only, each with a part of its error.
INVALID = {
    "allreduce: op": (argument(collectives.allreduce, op=(77, farandole.Sum)), "op 77 is none of"),
    "allreduce: op beyond 32 bits": (argument(collectives.allreduce, op=(2**32, farandole.Sum)), "is none of"),
    "allreduce: average of bool": (
        argument(
            collectives.allreduce, tensor=(np.ones(3, bool), np.ones(3, bool)), op=(farandole.Average, farandole.Sum)
        ),
        "need numbers",
    ),
    "allreduce: a type that no collective has": (
        argument(collectives.allreduce, tensor=(np.ones(3, np.complex64), np.ones(3, np.int32)), average=(False, False)),
        "convert to one of",
    ),
    "allreduce: average and op": (
        argument(collectives.allreduce, average=(True, None), op=(farandole.Sum, farandole.Sum)),
        "not both",
    ),
    "allreduce: out": (argument(collectives.allreduce, out=(np.ones(3), None)), "out must be"),
    "allreduce: prescale_factor": (argument(collectives.allreduce, prescale_factor=(NEVER_A_NUMBER, 1.0)), "not NaN"),
    "allreduce: postscale_factor": (argument(collectives.allreduce, postscale_factor=(NEVER_A_NUMBER, 1.0)), "not NaN"),
    "grouped_allreduce: out": (
        argument(collectives.grouped_allreduce, tensor=([ONES], [ONES]), out=([], None)),
        "1 arrays, but out has 0",
    ),
    "allgather: a scalar": (argument(collectives.allgather, tensor=(1.0, ONES)), "at least one dimension"),
    "broadcast: root_rank after the last": (
        lambda odd, name: collectives.broadcast(ONES, farandole.size() if odd else 0, name=name),
        r"root_rank \d is none of the ranks \[0, 1",
    ),
    "broadcast: root_rank before the first": (argument(collectives.broadcast, root_rank=(-1, 0)), "root_rank -1"),
    "broadcast: root_rank beyond 32 bits": (argument(collectives.broadcast, root_rank=(2**32, 0)), "root_rank 4294967296"),
    "broadcast: root_rank is no number": (argument(collectives.broadcast, root_rank=("0", 0)), "number of a rank, not '0'"),
    "broadcast_: not an array": (
        lambda odd, name: collectives.broadcast_([1.0] if odd else np.ones(1), 0, name=name),
        "overwrites a numpy array",
    ),
    "alltoall: splits": (
        lambda odd, name: collectives.alltoall(
            np.ones(farandole.size()), splits=[1] * (farandole.size() + (1 if odd else 0)), name=name
        ),
        r"splits \[1, 1.*must be",
    ),
    "alltoall: no splits": (
        lambda odd, name: collectives.alltoall(np.ones(farandole.size() + (1 if odd else 0)), name=name),
        "pass splits",
    ),
    "reducescatter: op": (argument(collectives.reducescatter, op=(farandole.Adasum, farandole.Sum)), "allreduce only"),
    "broadcast_object: root_rank": (
        lambda odd, name: objects.broadcast_object("x", farandole.size() if odd else 0, name=name),
        r"root_rank \d is none of the ranks",
    ),
    "broadcast_object: root_rank before the first": (argument(objects.broadcast_object, root_rank=(-1, 0)), "root_rank -1"),
    "add_process_set: ranks": (
        lambda odd, name: farandole.add_process_set([99] if odd else [1]),
        "different ranks between 0 and",
    ),
}


class AgreementTest(support.RankedTest):
    def setUp(self):
        super().setUp()
        if farandole.size() < 2:
            self.skipTest("needs two ranks")
        self.last = farandole.size() - 1
        self.odd = farandole.rank() == self.last

    def caught(self, call, name, kind):
        began = time.monotonic()
        with self.assertRaises(kind) as raised:
            call(self.odd, name)
        self.assertLess(time.monotonic() - began, SOON)
        self.assertIs(type(raised.exception), kind)
        return str(raised.exception)

    def goes_on(self):
        """Calls without a name meet on all ranks, of every kind."""
        size = farandole.size()
        self.assertEqual(collectives.allreduce([1.0], op=farandole.Sum)[0], size)
        self.assertEqual(collectives.allgather([1.0]).size, size)
        self.assertEqual(collectives.broadcast([float(farandole.rank())], 1)[0], 1.0)
        self.assertEqual(collectives.alltoall(np.ones(size)).size, size)
        self.assertEqual(collectives.reducescatter(np.ones(size), op=farandole.Sum)[0], size)
        self.assertEqual(objects.broadcast_object(farandole.rank()), 0)
        self.assertEqual(objects.allgather_object(farandole.rank()), list(range(size)))

    def test_disagreements(self):
        for what, (call, text) in MISMATCHES.items():
            for name in (None, "named"):
                with self.subTest(what, name=name):
                    found = self.caught(call, name, errors.Mismatch)
                    self.assertRegex(found, text)
                    self.assertEqual(len(set(objects.allgather_object(found))), 1, "each rank has another text")
        self.goes_on()

    def test_invalid_values(self):
        for what, (call, text) in INVALID.items():
            for name in (None, "named"):
                with self.subTest(what, name=name):
                    found = self.caught(call, name, errors.InvalidArgument if self.odd else errors.Mismatch)
                    self.assertRegex(found, text)
                    if not self.odd:
                        self.assertIn(f"rank {self.last}", found)
                        self.assertIn("an invalid request", found)
        self.goes_on()

    def test_invalid_values_on_any_rank(self):
        for call, text in INVALID.values():
            with self.assertRaisesRegex(errors.InvalidArgument, text):
                call(True, None)
        self.goes_on()

    def test_an_invalid_call_that_no_other_rank_makes(self):
        if self.odd:
            with self.assertRaises(errors.InvalidArgument):
                collectives.allreduce(ONES, op=77, name="tried alone")
        self.goes_on()

    def test_out_is_unchanged(self):
        mine = np.full(4, farandole.rank())
        with self.assertRaises(errors.Mismatch):
            collectives.broadcast_(mine, root_rank=1 if self.odd else 0)
        self.assertTrue((mine == farandole.rank()).all())

    def test_roots_may_be_integers_of_numpy(self):
        self.assertEqual(collectives.broadcast(farandole.rank(), np.int64(1)), 1)
        self.assertEqual(objects.broadcast_object(farandole.rank(), np.int32(1)), 1)

    def test_roots_of_a_process_set_are_ranks_of_the_job(self):
        if farandole.size() < 3:
            self.skipTest("needs three ranks")
        behind = farandole.add_process_set([1, 2])
        if behind.included():
            self.assertEqual(objects.broadcast_object(farandole.rank(), 2, process_set=behind), 2)
            with self.assertRaisesRegex(errors.InvalidArgument, r"root_rank 0 is none of the ranks \[1, 2\]"):
                objects.broadcast_object("x", 0, process_set=behind)
            self.assertEqual(collectives.allreduce([1.0], op=farandole.Sum, process_set=behind)[0], 2)
        farandole.remove_process_set(behind)


if __name__ == "__main__":
    support.main()
