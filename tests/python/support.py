# SPDX-License-Identifier: Apache-2.0
"""Runs tests on several ranks.

    mpirun -np 2 python numpy_test.py [names of tests]

The first failure of a rank ends the job. A test that hangs ends the job after printing the stacks of all threads.
"""

import faulthandler
import importlib.util
import os
import sys
import unittest

SKIPPED = 77  # for ctest
WATCHDOG_SECONDS = float(os.environ.get("WATCHDOG_SECONDS", "120"))


def _is_first() -> bool:
    for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        if name in os.environ:
            return os.environ[name] == "0"
    return True


def need(*modules: str) -> None:
    """Skips the test program if one of the modules cannot be imported by this interpreter."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            if _is_first():
                print(f"skipped: {sys.executable} has no {module}")
            sys.exit(SKIPPED)


class RankedTest(unittest.TestCase):
    """Says which rank a failure is from, and ends tests that hang. Each test gets the warnings that a process logs once."""

    def setUp(self):
        from farandole import _lifecycle

        _lifecycle._warned.clear()
        faulthandler.dump_traceback_later(WATCHDOG_SECONDS, exit=True)

    def tearDown(self):
        faulthandler.cancel_dump_traceback_later()

    def shortDescription(self):
        import farandole

        where = f"[rank {farandole.rank()}] " if farandole.is_initialized() else ""
        return where + self.id()


def main(process_sets=None, modules=()) -> None:
    """Runs the tests of the calling program, or of these modules, in the order of their names, which is the same on all
    ranks, in a job with these process sets."""
    import farandole

    faulthandler.dump_traceback_later(WATCHDOG_SECONDS, exit=True)
    farandole.init(process_sets=process_sets)
    first = farandole.rank() == 0
    arguments = {"module": None, "argv": [sys.argv[0], *modules]} if modules else {}
    program = unittest.main(exit=False, failfast=True, verbosity=2 if first else 0, **arguments)
    if not program.result.wasSuccessful():
        if farandole.is_initialized():
            farandole.abort("a test failed")
        sys.exit(1)
    faulthandler.dump_traceback_later(WATCHDOG_SECONDS, exit=True)
    farandole.shutdown()
    faulthandler.cancel_dump_traceback_later()
