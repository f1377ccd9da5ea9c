# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while a TensorFlow op waits for another rank: immediately a KeyboardInterrupt here, and an error on the other rank.

    mpirun -np 2 python tensorflow_interrupt.py eager|function

Each run tests one way to wait, because an aborted job ends with its processes. Launchers report the job as failed; the test
passes if both ranks print "good".
"""

import faulthandler
import os
import signal
import sys
import tempfile
import threading
import time

import support

support.need("tensorflow")

import tensorflow as tf  # noqa: E402

import farandole  # noqa: E402
import farandole.numpy  # noqa: E402
import farandole.tensorflow  # noqa: E402
from farandole import errors, objects  # noqa: E402
from farandole.tensorflow import _library, mpi_ops  # noqa: E402

MOST_SECONDS = 1.0


def wait() -> tf.Tensor:
    return mpi_ops._allreduce(tf.ones([2]), name="waits")


def interrupted(waits) -> None:
    """Is interrupted as soon as the collective is pending; nobody else comes to it."""
    sent = []

    def interrupt():
        while _library.pending() == 0:
            time.sleep(0.001)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    try:
        waits()
    except KeyboardInterrupt:
        seconds = time.monotonic() - sent[0]
        print(f"KeyboardInterrupt after {seconds * 1000:.1f} ms", flush=True)
        assert seconds < MOST_SECONDS
    else:
        sys.exit("the op has ended without another rank")


def meet(fifo: str, is_writer: bool) -> None:
    """Both ranks return when both have come: opening a FIFO waits for its other end."""
    with open(fifo, "w" if is_writer else "r"):
        pass


def aborted() -> None:
    try:
        mpi_ops._allreduce(tf.ones([2]), name="later")
    except errors.PeerLost as error:
        assert "rank 0" in str(error) and "SIGINT" in str(error), error
    else:
        sys.exit("rank 1 has not heard of the interrupt")


def main() -> None:
    faulthandler.dump_traceback_later(support.WATCHDOG_SECONDS, exit=True)
    farandole.tensorflow.init()
    first = farandole.rank() == 0
    fifo = objects.broadcast_object(os.path.join(tempfile.gettempdir(), f"farandole-interrupt-{os.getpid()}"), 0)
    if first:
        os.mkfifo(fifo)
    farandole.numpy.barrier()
    if first:
        interrupted(tf.function(wait) if sys.argv[1] == "function" else wait)
    meet(fifo, first)
    if not first:
        aborted()
    print(f"rank {farandole.rank()} is good", flush=True)
    meet(fifo, not first)  # a launcher ends the other ranks when one has ended
    if first:
        os.unlink(fifo)


if __name__ == "__main__":
    main()
