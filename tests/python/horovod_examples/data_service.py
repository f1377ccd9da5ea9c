# SPDX-License-Identifier: Apache-2.0
"""Starts the two jobs of the data service's example: usage: data_service.py LAUNCHER [ARGUMENT…]

One job prepares data, the other job trains with the data. Runs with the dispatchers on either side. Exit status: 0 for
success.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import support  # noqa: E402 after its directory is known

support.need("numpy", "tensorflow")
SECONDS = 120


def start(launcher, *program):
    command = [*launcher, sys.executable, "-m", "farandole.as_horovod", *program]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)


def main(launcher):
    for side in ("compute", "training"):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "service.json")
            jobs = [
                start(launcher, "-m", "horovod.tensorflow.data.compute_worker", file, "--dispatcher-side", side),
                start(launcher, str(HERE / "data_service_training.py"), file, side),
            ]
            try:
                # The one that trains ends the other.
                statuses = [job.wait(SECONDS) for job in reversed(jobs)]
            finally:
                for job in jobs:
                    job.terminate()
                    job.wait()
        if any(statuses):
            sys.exit(f"dispatchers on the side of {side}: statuses of training and preparing: {statuses}")


main(sys.argv[1:])
