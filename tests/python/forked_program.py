# SPDX-License-Identifier: Apache-2.0
"""Ranks with forked children that end in the usual ways: by sys.exit, at the end of the program, or by an exception.

    mpirun -np 2 python forked_program.py

The children run Python's exit handlers, which must neither leave the job nor send any message."""

import os
import signal
import sys

import support

support.need("numpy")

from forking import SECONDS

import farandole
import farandole.numpy as collectives

STATUS = {"exit": 3, "return": 0, "raise": 1}


def end_child(how: str) -> None:
    signal.alarm(SECONDS)
    os.close(2)  # of an exception
    os.open(os.devnull, os.O_WRONLY)
    if how == "exit":
        sys.exit(STATUS[how])
    if how == "raise":
        raise RuntimeError("of a child")


def main() -> None:
    # Not faulthandler's watchdog: a forked child would wait for its thread at exit.
    signal.alarm(int(support.WATCHDOG_SECONDS))
    farandole.init()
    for how in STATUS:
        child = os.fork()
        if child == 0:
            end_child(how)
            return
        for _ in range(10):
            assert collectives.allreduce([1.0], op=farandole.Sum).tolist() == [farandole.size()]
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert ended == STATUS[how], f"the child that was to {how} ended with {ended}"
        assert collectives.allreduce([1.0], op=farandole.Sum).tolist() == [farandole.size()]
    print(f"rank {farandole.rank()} is good")


main()
