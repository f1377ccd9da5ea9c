# SPDX-License-Identifier: Apache-2.0
"""A rank that torchrun starts. With a directory as argument, each rank makes a file there when it has started. The first time,
rank 0 then kills itself, and the other ranks wait, without a call that could report the loss, until torchrun ends them."""

import os
import pathlib
import signal
import sys

import numpy as np

import farandole
import farandole.numpy as collectives

farandole.init()
rank = farandole.rank()
total = collectives.allreduce(np.full(1000, rank + 1.0), op=farandole.Sum)[0]
text = f"rank {rank} of {farandole.size()}, local rank {farandole.local_rank()} of {farandole.local_size()}: sum {total:g}"
if len(sys.argv) > 1:
    marker = pathlib.Path(sys.argv[1], f"started.{rank}")
    is_first = not marker.exists()
    marker.touch()
    collectives.barrier()
    if is_first:
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()
    text += f", started again, TORCHELASTIC_RESTART_COUNT={os.environ['TORCHELASTIC_RESTART_COUNT']}"
# One write, so that lines of ranks do not mix.
sys.stdout.write(text + "\n")
sys.stdout.flush()
