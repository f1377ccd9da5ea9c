# SPDX-License-Identifier: Apache-2.0
"""A job of two ranks. Rank 1 ends in the way that the argument selects (raise, long, exit, kill, end) while rank 0 waits.
With `interrupt` and `handler`, rank 0 gets a signal while it waits. exit_driver.py starts this program."""

import os
import signal
import sys
import threading
import time

import numpy as np

import farandole
import farandole.numpy as collectives

how = sys.argv[1]
farandole.init()
rank = farandole.rank()
collectives.barrier()

if how == "interrupt" and rank == 0:
    # Nobody else comes to this collective: only the signal ends the wait.
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        collectives.allreduce(np.ones(3), name="alone")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise
if how == "interrupt" and rank == 1:
    # Busy elsewhere: a thread that waited in the library would make this a deadlock, which is told at once.
    work = collectives.allreduce_async(np.ones(3), name="other")
    while not work.done():
        time.sleep(0.01)
    work.wait()
if how == "handler" and rank == 0:
    # A handler that returns does not end the wait.
    signal.signal(signal.SIGUSR1, lambda *_: print("handled", flush=True))
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
    threading.Timer(0.6, lambda: collectives.allreduce([1.0], name="go")).start()
    print(collectives.allreduce([1.0], name="late", op=farandole.Sum), flush=True)
if how == "handler" and rank == 1:
    collectives.allreduce([1.0], name="go")
    collectives.allreduce([1.0], name="late", op=farandole.Sum)

if rank == 1:
    if how == "raise":
        raise KeyError("no such thing")
    if how == "long":
        raise ValueError("the beginning " + "\u00e9" * 100000 + " the end")
    if how == "exit":
        sys.exit(3)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "end":
        sys.exit(0)
elif how in ("raise", "long", "exit", "kill"):
    collectives.allreduce(np.ones(3), name="never")
elif how == "end":
    # The other rank waits in good order until this one has ended too.
    print("still here", flush=True)
