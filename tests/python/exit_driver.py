# SPDX-License-Identifier: Apache-2.0
"""usage: exit_driver.py HOW LAUNCHER…

Starts exit_program.py with the launcher, and checks how the job ends: its status, its output, and that it ends soon.
"""

import os
import signal
import subprocess
import sys
import time

import support

support.need("numpy")

SECONDS = 30  # a job that hangs is one that takes longer; the deadline is far away from what is measured
# Whether the job must succeed, and texts that the job's output must contain.
EXPECTED = {
    "raise": (False, ["KeyError: 'no such thing'", "exit_program.py:"]),
    "long": (False, ["aborted: ValueError: the beginning", "bytes …]", "the end (", "exit_program.py:"]),
    "exit": (False, ["rank 1"]),
    "kill": (False, []),
    "interrupt": (False, ["interrupted", "rank 0", "aborted: KeyboardInterrupt"]),
    "handler": (True, ["handled", "[2.]"]),
    "end": (True, ["still here"]),
}


def main() -> None:
    how, *launcher = sys.argv[1:]
    succeeds, texts = EXPECTED[how]
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "exit_program.py")
    began = time.monotonic()
    job = subprocess.Popen(
        [*launcher, sys.executable, program, how],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = job.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)  # the ranks too
        output, _ = job.communicate()
        sys.exit(f"{output}\nthe job did not end within {SECONDS} s")
    print(output)
    print(f"status {job.returncode} after {time.monotonic() - began:.1f} s")
    assert (job.returncode == 0) == succeeds, f"status {job.returncode}"
    for text in texts:
        assert text in output, f"missing: {text}"


if __name__ == "__main__":
    main()
