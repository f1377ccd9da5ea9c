# SPDX-License-Identifier: Apache-2.0
"""Breaks the TensorFlow ops, by one mutant of the table after another, and runs tests on the fake GPU that must fail then.

    python op_mutants.py [NAME...]

Says of each mutant whether a test finds it; ends with 1 if a mutant is not found or its text is gone. A mutant is a copy of
the package with a changed source: its ranks build the ops, as a user's first import does.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import support

support.need("tensorflow")

import farandole  # noqa: E402

_PACKAGE = Path(farandole.__file__).resolve().parent
_LAUNCHER = Path(__file__).resolve().parent.parent / "support" / "local_job.sh"
_COLLECTIVES, _ERRORS = "tensorflow_gpu_test.CollectivesTest", "tensorflow_gpu_test.ErrorsTest"
_LIMIT_S = 120
_REASON = re.compile(r"^(?:\w*Error|fake device misuse|FAIL|Fatal|Aborted|Segmentation fault|timed out).*", re.MULTILINE)


class Mutant(NamedTuple):
    name: str
    source: str
    before: str
    after: str
    tests: str


MUTANTS = [
    Mutant("results-in-another-stream", "call.cpp", "tensor.stream = device.stream;", "tensor.stream = nullptr;",
           f"{_COLLECTIVES}.test_later_ops_wait_for_the_result"),
    Mutant("tensors-said-to-be-of-the-host", "call.cpp",
           "if (options_.is_on_gpu) record.memory = FARANDOLE_CUDA_MEMORY;", "",
           f"{_COLLECTIVES}.test_factors"),
    Mutant("tensors-of-the-first-gpu", "call.cpp", "tensor.device = device.ordinal;", "tensor.device = 0;",
           f"{_COLLECTIVES}.test_factors"),
    Mutant("errors-are-swallowed-by-done", "call.cpp",
           "call->set_error(error_status(result->error), /*failed_on_all=*/true);", "",
           f"{_ERRORS}.test_ranks_with_different_shapes"),
    Mutant("done-before-the-status", "call.cpp", "context_->SetStatus(status_);", "",
           f"{_ERRORS}.test_ranks_with_different_shapes"),
    Mutant("broadcast-values-are-not-kept", "collective_kernels.cpp", "*target.variable->tensor() = target.output;", "",
           f"{_COLLECTIVES}.test_broadcast_overwrites_variables"),
    Mutant("splits-in-device-memory", "collective_kernels.cpp", '{"splits", "received_splits"}', '{"received_splits"}',
           f"{_COLLECTIVES}.test_alltoall_with_splits"),
]


def run_tests(package_root: Path, tests: str, cache: Path) -> str:
    """Runs the tests on two ranks. Returns why they fail; empty if they pass."""
    environment = {**os.environ, "PYTHONPATH": str(package_root), "XDG_CACHE_HOME": str(cache), "FARANDOLE_TIMEOUT": "20"}
    program = Path(__file__).resolve().parent / "several.py"
    with subprocess.Popen([_LAUNCHER, "-n", "2", sys.executable, program, tests], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True) as job:
        try:
            output = job.communicate(timeout=_LIMIT_S)[0]
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            return f"timed out after {_LIMIT_S} s"
    if job.returncode == 0:
        return ""
    if "could not be built" in output:
        raise RuntimeError(output)
    reason = _REASON.search(output)
    return reason[0] if reason else output[-500:]


def why_found(mutant: Mutant, scratch: Path) -> str:
    root = scratch / mutant.name
    package = root / _PACKAGE.name
    shutil.copytree(_PACKAGE, package, symlinks=True, ignore=shutil.ignore_patterns("libfarandole_tensorflow_*"))
    source = package / "tensorflow" / "source" / mutant.source
    text = source.read_text(encoding="utf-8")
    if text.count(mutant.before) != 1:
        raise RuntimeError(f"the text before occurs {text.count(mutant.before)} times: {mutant.before}")
    source.unlink()  # the copy may be a link
    source.write_text(text.replace(mutant.before, mutant.after), encoding="utf-8")
    return run_tests(root, mutant.tests, root / "cache")


def main() -> int:
    chosen = [mutant for mutant in MUTANTS if not sys.argv[1:] or mutant.name in sys.argv[1:]]
    if len(chosen) < len(sys.argv[1:]):
        sys.exit(f"op_mutants.py: there is no such mutant; the mutants are {', '.join(each.name for each in MUTANTS)}")
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        for tests in sorted({mutant.tests for mutant in chosen}):
            reason = run_tests(_PACKAGE.parent, tests, Path(directory, "cache"))
            if reason:
                sys.exit(f"{tests} fails without a mutant: {reason}")
        for mutant in chosen:
            reason = why_found(mutant, Path(directory))
            print(f"{mutant.name}: {'found: ' + reason if reason else 'NOT FOUND by ' + mutant.tests}", flush=True)
            failed |= not reason
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
