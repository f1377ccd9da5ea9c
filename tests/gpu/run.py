#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: run.py look
       run.py [--quick] PROGRAMS OUT [SECONDS]

look says in one line why there is no GPU here, and ends with 77, or says nothing.

The other form tests and measures on this machine's GPUs, within SECONDS (560). PROGRAMS is a build directory, or the folder
that `tests/run.sh --gpu-bundle` made. It needs a driver, an NCCL and Python 3.8; nothing is installed or fetched. Each step
has a time limit, writes its result into OUT at once, and prints one line; the run goes on after a failure. At the end a table
comes, and OUT holds steps.jsonl, log.txt, gpu-report.json, gpu-report.md. Steps for which no time is left are passed over.

Exit status: 0 tests passed on a device and nothing failed, 1 a step failed, 2 wrong arguments, 77 no test ran on a device.

FARANDOLE_CUDA_LIBRARY, FARANDOLE_NCCL_LIBRARY, FARANDOLE_CUBLAS_LIBRARY and FARANDOLE_CUDNN_LIBRARY name libraries; else NCCL,
cuBLAS and cuDNN are looked for where the loader looks, and in Python packages. With the double of tests/support/host_device the report says that it is no result of a GPU.
"""
import argparse
import ctypes
import datetime
import glob
import json
import lzma
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import report
import steps

HERE = pathlib.Path(__file__).resolve().parent
INSTALLED_DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
LOG_BYTES = 400_000  # of each step's output: its beginning and its end
SPARE_SECONDS = 8  # a step that has less left is not begun


def why_no_gpu():
    """One line, or nothing if there is a driver that sees a device."""
    named = os.environ.get("FARANDOLE_CUDA_LIBRARY")
    try:
        driver = ctypes.CDLL(named or "libcuda.so.1")
    except OSError as error:
        return f"{'FARANDOLE_CUDA_LIBRARY' if named else 'no NVIDIA driver'}: {error}"
    result = driver.cuInit(0)
    if result != 0:
        return f"the driver is there, but cuInit failed with error {result}"
    count = ctypes.c_int(0)
    driver.cuDeviceGetCount(ctypes.byref(count))
    return "" if count.value > 0 else "CUDA sees no device here"


# Locations of programs and libraries.


def pythons():
    """Interpreters of this machine, this one first, each once."""
    found = [sys.executable]
    for directory in os.environ.get("PATH", "").split(os.pathsep) + glob.glob("/opt/*/bin"):
        found += sorted(glob.glob(os.path.join(directory, "python3"))) + sorted(glob.glob(os.path.join(directory, "python3.[0-9]*")))
    return list({os.path.realpath(path): path for path in reversed(found) if os.access(path, os.X_OK)}.values())[::-1]


def search_paths(python):
    command = [python, "-c", "import sys; print('\\n'.join(sys.path))"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return []


def find_library(variable, names, places):
    """(path or name for `variable`, where it was found); ("", why there is none). `places` are in a Python's packages."""
    if os.environ.get(variable):
        return os.environ[variable], f"named by {variable}"
    for name in names:
        try:
            ctypes.CDLL(name)
            return name, "on the loader's path"
        except OSError:
            pass
    for python in pythons():
        for path in search_paths(python):
            for place in places:
                for file in glob.glob(os.path.join(path, "nvidia", place)):
                    return file, f"in the packages of {python}"
    return "", f"neither on the loader's path nor in a Python's nvidia/{places[0]}; {variable} may name one"


def find_nccl():
    return find_library("FARANDOLE_NCCL_LIBRARY", ["libnccl.so.2"], ["nccl/lib/libnccl.so.2"])


def find_cublas():
    names = ["libcublas.so.13", "libcublas.so.12"]
    return find_library("FARANDOLE_CUBLAS_LIBRARY", names, ["cu13/lib/libcublas.so.13", "cublas/lib/libcublas.so.1[23]"])


def find_cudnn():
    return find_library("FARANDOLE_CUDNN_LIBRARY", ["libcudnn.so.9"], ["cudnn/lib/libcudnn.so.9"])


def torch_python():
    """An interpreter whose torch sees a device, or nothing."""
    for python in pythons():
        try:
            code = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 1)"
            if subprocess.run([python, "-c", code], capture_output=True, timeout=60, check=False).returncode == 0:
                return python
        except (OSError, subprocess.SubprocessError):
            pass
    return ""


def unpack_libraries(programs, directory):
    """Writes the libraries that a bundle holds compressed into `directory`."""
    for packed in sorted((programs / "lib").glob("*.xz")):
        with lzma.open(packed) as source, open(directory / packed.stem, "wb") as plain:
            shutil.copyfileobj(source, plain)


class Machine:
    """Programs, libraries and data that steps need, each looked up once. @param unpacked  a directory of this run, with the bundle's
    compressed libraries"""

    def __init__(self, programs, unpacked):
        self.programs = programs.resolve()
        self.data = next((path for path in (self.programs / "data" / "fashion-mnist", INSTALLED_DATA) if path.is_dir()), None)
        self.no_gpu = why_no_gpu()
        self.nccl, self.nccl_origin = find_nccl()
        self.cublas, self.cublas_origin = find_cublas()
        cudnn, _ = find_cudnn()
        libraries = [str(self.programs / "lib"), str(unpacked), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        packages = [str(self.programs / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
        # farandole.torch builds its library in the cache. One of this run works wherever the home directory cannot be written.
        self.environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(libraries), "PYTHONPATH": os.pathsep.join(packages),
                            "XDG_CACHE_HOME": str(unpacked),
                            **({"FARANDOLE_NCCL_LIBRARY": self.nccl} if self.nccl else {}),
                            **({"FARANDOLE_CUBLAS_LIBRARY": self.cublas} if self.cublas else {}),
                            **({"FARANDOLE_CUDNN_LIBRARY": cudnn} if cudnn else {})}
        self.environment.setdefault("FARANDOLE_TIMEOUT", "60")
        self.info = self.read_info()
        self.torch = "" if self.no_gpu or self.is_double else torch_python()

    def read_info(self):
        command = [str(self.programs / "bin" / "farandole-info"), "--json"]
        try:
            done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=True)
            return json.loads(done.stdout)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None)
            sys.exit(f"run.py: {command[0]} does not work here: {error}\n{said or ''}")

    @property
    def devices(self):
        return self.info["devices"]["list"]

    @property
    def is_double(self):
        return report.is_double(self.devices)

    def why_not(self, needs):
        """Why a step that needs this cannot run here; nothing if it can."""
        if needs == "nothing":
            return ""
        if self.no_gpu or not self.devices:
            return f"no device: {self.no_gpu or self.info['devices']['reason']}"
        kind, _, value = needs.partition("=")
        if kind == "data":
            if not (self.programs / "bin" / "farandole-train").exists():
                return "this build has no trainer"
            return "" if self.data else "Fashion-MNIST is not there"
        if kind == "trainer":
            if not (self.programs / "bin" / "trainer_device_test").exists():
                return "this build has no trainer"
            return "" if self.cublas else f"no cuBLAS: {self.cublas_origin}"
        if kind in ("nccl", "devices"):
            missing = self.info["devices"]["collectives_missing"]
            if missing:
                return f"no collectives on devices: {missing}" + ("" if self.nccl else f" (NCCL: {self.nccl_origin})")
            there = len(self.devices)
            return "" if there >= int(value or 1) else f"devices that are needed: {value}; that are there: {there}"
        if kind == "tool":
            if self.is_double:
                return "the devices are the double's"
            return "" if tool_path(value) else f"there is no {value}"
        if kind == "torch":
            return "" if self.torch else "the devices are the double's" if self.is_double else "no Python here has a torch that sees a device"
        return "" if kind == "device" else f"nobody knows what '{needs}' is"


def tool_path(name):
    return shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")


# One step.


def command_of(step, machine, out):
    words = {"{bin}": str(machine.programs / "bin"), "{tests}": str(HERE), "{data}": str(machine.data), "{out}": str(out),
             "{python}": machine.torch or sys.executable}
    command = [re.sub("|".join(map(re.escape, words)), lambda match: words[match.group()], word) for word in step.command]
    if "/" not in command[0]:
        command[0] = tool_path(command[0]) or command[0]
    support = HERE.parent / "support"
    if step.ranks > 0:
        own_host = ["bash", str(support / "own_host.sh")] if step.share_device else []
        command = ["bash", str(support / "local_job.sh"), "-n", str(step.ranks), *own_host, *command]
    return command


def environment_of(step, machine):
    sharing = {"FARANDOLE_DEVICE": "0", "NCCL_SOCKET_IFNAME": "lo"} if step.share_device else {}
    return {**machine.environment, **sharing, **step.environment}


def execute(command, environment, limit, file):
    """(status, seconds); status is None if the time ended. All processes of the step are ended with it."""
    begin = time.monotonic()
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                               start_new_session=True)
    try:
        status = process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        status = None
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        if number == signal.SIGTERM and status is None:
            time.sleep(2)  # a report of where it hangs, if the program writes one
    process.wait()
    return status, time.monotonic() - begin


def why_not_after(step, rows):
    """Why a step is skipped because of the outcome of the step that it follows; nothing if it is not."""
    row = report.named(rows, step.after) if step.after else {"result": "passed"}
    if row["result"] == "passed":
        return ""
    return f"'{step.after}' {'failed' if row['result'] == 'failed' else 'was skipped'}: {row['reason']}"


def run_step(step, machine, out, left, rows):
    """The row of a step, with its outcome. @param rows  those of the earlier steps"""
    row = {"name": step.name, "needs": step.needs, "result": "skipped", "seconds": 0.0}
    reason = machine.why_not(step.needs) or why_not_after(step, rows)
    if not reason and left < SPARE_SECONDS:
        reason = "no time was left"
    if reason:
        return {**row, "reason": reason}, ""
    scratch = out / "step.txt"
    with open(scratch, "wb") as file:
        try:
            status, seconds = execute(command_of(step, machine, out), environment_of(step, machine), min(step.limit, left), file)
        except OSError as error:
            status, seconds = str(error), 0.0
    output = scratch.read_bytes().decode(errors="replace")
    scratch.unlink()
    return {**row, "seconds": round(seconds, 1), **report.outcome(step, status, output)}, output


def shortened(text):
    if len(text) <= LOG_BYTES:
        return text
    half = LOG_BYTES // 2
    return f"{text[:half]}\n… {len(text) - LOG_BYTES} characters are left out …\n{text[-half:]}"


def run(programs, out, seconds, quick):
    end = time.monotonic() + seconds
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as unpacked:
        unpack_libraries(programs, pathlib.Path(unpacked))
        machine = Machine(programs, unpacked)
        rows = run_steps(machine, out, end, quick)
    whole = report.make_report(machine.info, rows)
    whole["made"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    whole["nccl"] = f"{machine.nccl or 'none'}, {machine.nccl_origin}"
    (out / "gpu-report.json").write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (out / "gpu-report.md").write_text(report.make_page(whole), encoding="utf-8")
    print("\n" + report.make_page(whole))
    return status_of(rows)


def run_steps(machine, out, end, quick):
    """The rows of all steps, each written into `out` and printed when it has ended."""
    print(f"NCCL: {machine.nccl or 'none'}, {machine.nccl_origin}", flush=True)
    rows = []
    with open(out / "steps.jsonl", "w", encoding="utf-8") as results, open(out / "log.txt", "w", encoding="utf-8") as log:
        for step in steps.steps(len(machine.devices), quick):
            row, output = run_step(step, machine, out, end - time.monotonic(), rows)
            rows.append(row)
            results.write(json.dumps(row, ensure_ascii=False) + "\n")
            log.write(f"=== {step.name}: {' '.join(step.command)}\n{shortened(output)}\n")
            for file in (results, log):
                file.flush()
                os.fsync(file.fileno())
            print(report.line_of(row), flush=True)
    return rows


def status_of(rows):
    if any(row["result"] == "failed" for row in rows):
        return 1
    tests_passed = any(row["result"] == "passed" and row.get("tests") and row["needs"] != "nothing" for row in rows)
    return 0 if tests_passed else report.SKIPPED


def main():
    if sys.argv[1:] == ["look"]:
        reason = why_no_gpu()
        print(reason, end="\n" if reason else "")
        return report.SKIPPED if reason else 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="measure and test next to nothing, to see that the steps work")
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("seconds", type=float, nargs="?", default=560)
    arguments = parser.parse_args()
    if not (arguments.programs / "bin" / "farandole-info").exists():
        parser.error(f"{arguments.programs} has no bin/farandole-info: it is neither a build directory nor a bundle")
    return run(arguments.programs, arguments.out.resolve(), arguments.seconds, arguments.quick)


if __name__ == "__main__":
    sys.exit(main())
