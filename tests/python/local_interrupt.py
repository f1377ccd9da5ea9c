# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends a process that waits for the other processes of its job, in a job that is started without MPI."""

import os
import signal
import subprocess
import sys

PROGRAM = "import farandole; farandole.init()"


def main():
    environment = dict(os.environ, FARANDOLE_RANK="0", FARANDOLE_SIZE="2", FARANDOLE_WARN_AFTER="0.1")
    environment["FARANDOLE_JOB"] = f"interrupt-{os.getpid()}"
    with subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stderr=subprocess.PIPE, text=True) as process:
        line = process.stderr.readline()
        assert "process 0 of 2 waits for process 1" in line, line
        process.send_signal(signal.SIGINT)
        status = process.wait(timeout=20)
    assert status == -signal.SIGINT, status


if __name__ == "__main__":
    main()
