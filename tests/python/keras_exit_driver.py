# SPDX-License-Identifier: Apache-2.0
"""usage: keras_exit_driver.py HOW LAUNCHER…

Starts keras_exit_program.py with the launcher, and checks that the whole job ends soon, with rank 1's error.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import support

support.need("numpy", "tensorflow", "keras")

SECONDS = 120  # for the start, too
SOON = 5  # what is promised; it takes 1 to 2 s on an idle machine, of which some launchers wait 1 s
TEXTS = {"callback": "nothing there, in a callback", "data": "nothing there, in the data", "interrupt": ""}


def left(token: str) -> list:
    """Processes that have the token on their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if token.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            pass  # it has just ended
    return found


def main() -> None:
    how, *launcher = sys.argv[1:]
    program = Path(__file__).resolve().with_name("keras_exit_program.py")
    token = f"--job={os.getpid()}"
    command = [*launcher, sys.executable, str(program), how, token]
    job = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True
    )
    lines, began = [], time.time()
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(job.pid, signal.SIGKILL))
    signal.alarm(SECONDS)
    for line in job.stdout:  # the launcher may put what two ranks print on one line
        lines.append(line)
        failing = re.search(r"failing at ([\d.]+)", line)
        if failing:
            began = float(failing[1])
        if how == "interrupt" and "training on rank 0" in line:
            began = time.time()
            os.killpg(job.pid, signal.SIGINT)  # as a terminal does
    status = job.wait()
    took = time.time() - began
    signal.alarm(0)
    output = "".join(lines)
    print(output)
    print(f"status {status}, {took:.1f} s after the failure")
    # After Ctrl-C MPICH's launcher, which says so, returns 0 at times, whatever the program is.
    assert status != 0 or "Sending Ctrl-C to processes" in output, "the job has succeeded"
    assert re.search(TEXTS[how], output), f"missing: {TEXTS[how]}"
    if TEXTS[how]:
        told = output[output.index("failing at") :].splitlines()[1:6]
        assert any(re.search(TEXTS[how], line) for line in told), f"the cause is not in the first lines: {told}"
    assert took < SOON, f"it took {took:.1f} s"
    remaining = left(token)
    for process in remaining:
        os.kill(process, signal.SIGKILL)
    assert not remaining, f"processes are left: {remaining}"


if __name__ == "__main__":
    main()
