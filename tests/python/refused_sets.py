# SPDX-License-Identifier: Apache-2.0
"""Invalid process sets: init() refuses them on all ranks, even if only the last rank's list is wrong. Each set is tested in
a separate job.

    tests/support/local_job.sh -n 2 python refused_sets.py
"""

import faulthandler
import os

import farandole
from farandole import errors

RANK, SIZE = int(os.environ["FARANDOLE_RANK"]), int(os.environ["FARANDOLE_SIZE"])
GOOD = [[0], range(1, SIZE)]
# Lists that the last rank or all ranks pass, each with a part of the expected error.
WRONG = {
    "a set twice": ([[0], [0]], "must differ"),
    "a set twice, in another order": ([[0, 1], (rank for rank in (1, 0))], "must differ"),
    "a rank twice": ([[0], [1, 1]], "each rank once"),
    "no ranks": ([[0], []], "needs ranks"),
    "all ranks": ([[0], range(SIZE)], "duplicate of global_process_set"),
    "a rank that there is not": ([[0], [SIZE]], f"from 0 to {SIZE - 1}"),
    "no list of ranks": ([[0], [0.5]], "list of ranks"),
    "no list of sets": (5, "not iterable"),
}


def sets_of(given):
    return given if given == 5 else [each if isinstance(each, range) else list(each) for each in given]


def check(number, given, who, expected, kind=ValueError):
    os.environ["FARANDOLE_JOB"] = f"{JOB}-{number}"
    try:
        farandole.init(process_sets=given)
    except kind as error:
        assert isinstance(error, errors.Error), error
        assert expected in str(error) and f"rank {who}" in str(error), error
    else:
        raise AssertionError(f"{expected}: was not refused")
    assert not farandole.is_initialized()


JOB = os.environ["FARANDOLE_JOB"]
faulthandler.dump_traceback_later(60, exit=True)
last = SIZE - 1
cases = [(sets_of(given), expected) for given, expected in WRONG.values()]
for number, (given, expected) in enumerate(cases):
    check(2 * number, given, 0, expected)
    check(2 * number + 1, given if RANK == last else GOOD, last, expected)
check("others", [[0]] if RANK == last else GOOD, last, "on rank 0 and [[0]]", errors.Mismatch)
os.environ["FARANDOLE_JOB"] = f"{JOB}-good"
iterators = [farandole.ProcessSet(iter([0])), farandole.ProcessSet(rank for rank in reversed(range(1, SIZE)))]
farandole.init(process_sets=iter(iterators))
assert [each.ranks for each in iterators] == [[0], list(range(1, SIZE))], iterators
assert farandole.process_set_by_id(iterators[0].process_set_id) is iterators[0]
farandole.shutdown()
