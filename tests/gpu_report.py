#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: gpu_report.py look | gpu_report.py run BUILD_DIRECTORY OUT_DIRECTORY [--quick]

look says in one line why there is no GPU here, and ends with 77, or says nothing. It needs no build.

run runs the tests with the label gpu of a build, measures, and writes OUT_DIRECTORY/gpu-report.json and gpu-report.md:
devices and versions, tests that passed, failed or were skipped and why, medians, and the targets. It ends with 1 if a test
or a measurement failed; targets that are missed are in the report only. --quick measures next to nothing and leaves the
long tests out, to see that the report works. tests/run.sh --gpu builds, and calls both.

FARANDOLE_CUDA_LIBRARY and FARANDOLE_NCCL_LIBRARY choose libraries. With the double of tests/support/host_device the report
says that it is no result of a GPU, and judges no target.
"""
import argparse
import ctypes
import datetime
import json
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

SKIPPED = 77
MIB = 1 << 20
DOUBLE = "not a GPU result: the driver is the double of tests/support/host_device"
# The devices of the double are called so.
DOUBLE_NAME = "fake device "
SHARED = "farandole_gpu.sharing.2"


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


# What came of the tests.


def parse_tests(junit):
    """A row for each test of CTest's JUnit file."""
    rows = []
    for case in xml.etree.ElementTree.fromstring(junit).iter("testcase"):
        output = case.findtext("system-out") or ""
        lines = [line.strip() for line in output.splitlines()]
        result = {"run": "passed", "fail": "failed"}.get(case.get("status"), "skipped")
        row = {"name": case.get("name"), "result": result, "seconds": round(float(case.get("time")), 3)}
        if result == "skipped":
            reasons = [line[len("skipped: "):] for line in lines if line.startswith("skipped: ")]
            row["reason"] = reasons[0] if reasons else "it said no reason"
        if result == "failed":
            row["output"] = lines[-40:]
        row["left_out"] = sorted({line for line in lines if "not run with " in line})
        row["measured"] = dict(read_measured(line) for line in lines if line.startswith("measured: "))
        rows.append(row)
    return rows


def read_measured(line):
    """('stuck stream, …', 0.02) of a line 'measured: stuck stream, …: 0.02'."""
    what, _, value = line[len("measured: "):].rpartition(": ")
    return what, float(value)


def measured(tests, start):
    """The first figure that a test printed under a name that begins so; None if none did."""
    return next((value for test in tests for what, value in test["measured"].items() if what.startswith(start)), None)


# Targets.


def bandwidths(figures):
    """GB/s, read and written, by name, and each one's ratio to the copy between memories of the device."""
    rows = {}
    for row in figures.get("memory", []):
        rows[row["name"]] = {"p50_us": row["p50_us"], "gbs": row["moved_bytes"] / row["p50_us"] / 1e3}
    for row in rows.values():
        row["of_copy"] = row["gbs"] / rows["copy"]["gbs"]
    return rows


def at_least(what, value, bound):
    return {"what": what, "target": f"≥ {bound}", "value": value, "met": None if value is None else value >= bound}


def at_most(what, value, bound):
    return {"what": what, "target": f"≤ {bound}", "value": value, "met": None if value is None else value <= bound}


def judge(report):
    """The targets, each met, missed, or neither, with the reason."""
    rates, figures = bandwidths(report["figures"]), report["figures"]
    mib = figures.get("bytes", 0) / MIB
    rows = [at_least(f"{name}, of a device-to-device copy at {mib:g} MiB", rates.get(name, {}).get("of_copy"), 0.9)
            for name in ("reduce_f32", "reduce_f16", "reduce_bf16")]
    rows += [at_least(f"{name} of ResNet-50's 161 tensors, of that copy", rates.get(name, {}).get("of_copy"), 0.85)
             for name in ("pack", "unpack")]
    up = figures.get("bring_up")
    rows.append(at_most("bring-up to the end of the first allreduce, of NCCL alone",
                        up["farandole_s"] / up["nccl_s"] if up else None, 1.1))
    rows.append(at_most("a stuck stream to Timeout, seconds after the deadline",
                        measured(report["tests"], "stuck stream"), 1))
    shared = next((test for test in report["tests"] if test["name"] == SHARED), None)
    came = shared and {"passed": True, "failed": False}.get(shared["result"])
    rows.append({"what": "two ranks on one GPU, every algorithm", "target": "correct", "value": shared and shared["result"],
                 "met": came, "reason": (shared or {}).get("reason", "the test was not run")})
    for row in rows:
        if report["is_double"]:
            row.update(met=None, reason=DOUBLE)
        elif row["met"] is None:
            row.setdefault("reason", "not measured: " + (report["not_measured"] or "see the tests"))
        else:
            row.pop("reason", None)
    return rows


def make_report(info, tests, figures, allreduce, not_measured):
    """All that is known. @param not_measured  reasons, or an empty list"""
    devices = info["devices"]
    report = {"is_double": any(device["name"].startswith(DOUBLE_NAME) for device in devices["list"]),
              "devices": devices["list"], "versions": devices["version"], "no_devices": devices["reason"],
              "no_collectives": devices["collectives_missing"], "warnings": devices["warnings"],
              "farandole": info["version"], "build": info["build"], "tests": tests, "figures": figures,
              "bandwidths": bandwidths(figures), "allreduce": allreduce, "not_measured": "; ".join(not_measured)}
    report["targets"] = judge(report)
    return report


# The page.


def table(columns, rows):
    lines = ["| " + " | ".join(columns) + " |", "| --- |" + " --- |" * (len(columns) - 1)]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows] + [""]


def number(value):
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def verdict(row):
    return {True: "met", False: "**missed**", None: row.get("reason", "")}[row["met"]]


def page_of_tests(tests):
    count = {result: sum(test["result"] == result for test in tests) for result in ("passed", "failed", "skipped")}
    lines = ["## Tests", "", f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped.", ""]
    rows = [(test["name"], test["result"], f"{test['seconds']:.1f}",
             "; ".join([test.get("reason", "")] * ("reason" in test) + test["left_out"])) for test in tests]
    lines += table(("test", "", "s", "what was left out, and why"), rows)
    for test in tests:
        if "output" in test:
            lines += [f"The end of {test['name']}:", "", "```", *test["output"], "```", ""]
    return lines


def page_of_figures(report):
    figures = report["figures"]
    lines = ["## Figures", ""]
    lines += table(("on the device", "median", "read and written", "of the copy"),
                   [(name, f"{row['p50_us']:.1f} µs", f"{row['gbs']:.0f} GB/s", f"{row['of_copy']:.2f}")
                    for name, row in report["bandwidths"].items()])
    rows = [("host, per NCCL group (send and receive)", figures.get("nccl_group_us")),
            ("host, per collective that is enqueued", figures.get("collective_us"))]
    rows = [(what, f"{value:.1f} µs") for what, value in rows if value is not None]
    if "bring_up" in figures:
        up = figures["bring_up"]
        rows += [(f"{what}, {up['ranks']} ranks", f"{1e3 * up[key]:.1f} ms")
                 for what, key in (("bring-up", "farandole_s"), ("bring-up of NCCL alone", "nccl_s"))]
    lines += table(("", "median"), rows)
    if report["allreduce"]:
        lines += [f"Allreduce in place, ranks: {report['allreduce'][0]['ranks']}; ratio: above 1 Farandole is faster.", ""]
        lines += table(("bytes", "Farandole", "NCCL", "ratio"),
                       [(row["bytes"], f"{row['p50_us']:.1f} µs", f"{row['peer_p50_us']:.1f} µs" if "ratio" in row else "",
                         f"{row['ratio']:.2f}" if "ratio" in row else "") for row in report["allreduce"]])
    return lines


def make_page(report):
    lines = ["# Farandole on GPUs", ""]
    if report["is_double"]:
        lines += [f"**{DOUBLE[0].upper()}{DOUBLE[1:]}. Its figures mean nothing.**", ""]
    rows = [("device " + str(device["ordinal"]),
             f"{device['name']}, {device['memory_bytes'] / 2**30:.1f} GiB, {device['compute_capability']}")
            for device in report["devices"]]
    rows.append(("versions", report["versions"] or f"none: {report['no_devices']}"))
    rows.append(("Farandole", f"{report['farandole']} ({report['build']})"))
    rows += [("made", report["made"])] if "made" in report else []
    rows += [("no collectives", report["no_collectives"])] if report["no_collectives"] else []
    rows += [("warning", warning) for warning in report["warnings"]]
    rows += [("not measured", report["not_measured"])] if report["not_measured"] else []
    lines += table(("", ""), rows)
    lines += ["## Targets", ""]
    lines += table(("what", "target", "came", ""),
                   [(row["what"], row["target"], number(row["value"]), verdict(row)) for row in report["targets"]])
    return "\n".join(lines + page_of_tests(report["tests"]) + page_of_figures(report))


# Running all.


class Runs:
    """The programs of a build. What fails is noted, and the rest goes on."""

    def __init__(self, build, out):
        self.build, self.out = build.resolve(), out.resolve()
        self.failures, self.skips = [], []

    def program(self, name):
        return str(self.build / "bin" / name)

    def info(self):
        return json.loads(subprocess.run([self.program("farandole-info"), "--json"], check=True, capture_output=True,
                                         text=True).stdout)

    def tests(self, quick):
        junit = self.out / "gpu-tests.xml"
        command = ["ctest", "--test-dir", str(self.build / "tests" / "gpu"), "--output-on-failure", "--output-junit",
                   str(junit), "--test-output-size-passed", "1000000", "--test-output-size-failed", "1000000"]
        junit.unlink(missing_ok=True)
        subprocess.run(command + (["-E", "threads|processes|sharing|stuck|sanitizer"] if quick else []), check=False)
        return parse_tests(junit.read_text(encoding="utf-8", errors="replace"))

    def output_of(self, command, **environment):
        """What it prints; None if it failed."""
        try:
            done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
                                  env={**os.environ, **environment}, timeout=1200)
        except subprocess.TimeoutExpired:
            self.failures.append(f"{pathlib.Path(command[0]).name} did not end within 20 minutes")
            return None
        if done.returncode == 0:
            return done.stdout
        last = (done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}").splitlines()[-1]
        self.failures.append(f"{pathlib.Path(command[0]).name} failed: {last}")
        return None

    def figures(self, ranks, quick, shared):
        sizes = ["1048576", "1"] if quick else [str(256 * MIB), "15"]
        program = self.program("farandole_gpu_figures")
        figures = json.loads(self.output_of([program, *sizes, str(ranks)]) or "{}")
        if ranks == 1 and shared:
            # Only what does not depend on how the processes divide the device.
            job = [str(pathlib.Path(__file__).parent / "support" / "local_job.sh"), "-n", "2", program, "1048576", "5", "1"]
            both = json.loads(self.output_of(job, NCCL_MULTI_RANK_GPU_ENABLE="1", FARANDOLE_DEVICE="0") or "{}")
            figures.update({key: both[key] for key in ("bring_up",) if key in both})
        elif ranks == 1:
            self.skips.append("bring-up and NCCL's own collectives need two devices, or an NCCL that lets ranks share one")
        return figures

    def allreduce(self, ranks, quick):
        file = self.out / "gpu-allreduce.json"
        command = [self.program("farandole-bench"), "--memory", "device", "--place", "in", "--replicas", str(ranks),
                   "--json", str(file), "--max-bytes", "1KiB" if quick else "256MiB"]
        command += ["--iterations", "3"] if quick else []
        command += ["--peer", "nccl"] if ranks > 1 else []
        return json.loads(file.read_text()) if self.output_of(command) is not None else []


def run(build, out, quick):
    out.mkdir(parents=True, exist_ok=True)
    runs = Runs(build, out)
    info, figures, allreduce = runs.info(), {}, []
    tests = runs.tests(quick)
    ranks = min(len(info["devices"]["list"]), 8)
    if ranks > 0 and not info["devices"]["collectives_missing"]:
        is_shared = any(test["name"] == SHARED and test["result"] == "passed" for test in tests)
        figures, allreduce = runs.figures(ranks, quick, is_shared), runs.allreduce(ranks, quick)
    else:
        runs.skips.append(info["devices"]["reason"] or info["devices"]["collectives_missing"])
    report = make_report(info, tests, figures, allreduce, runs.failures + runs.skips)
    report["made"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    page = make_page(report)
    (out / "gpu-report.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (out / "gpu-report.md").write_text(page, encoding="utf-8")
    print(f"{page}\nThe report is in {runs.out / 'gpu-report.md'} and gpu-report.json beside it.")
    return 1 if runs.failures or any(test["result"] == "failed" for test in tests) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("look")
    runner = commands.add_parser("run")
    runner.add_argument("build", type=pathlib.Path)
    runner.add_argument("out", type=pathlib.Path)
    runner.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    if arguments.command == "run":
        return run(arguments.build, arguments.out, arguments.quick)
    reason = why_no_gpu()
    print(reason, end="\n" if reason else "")
    return SKIPPED if reason else 0


if __name__ == "__main__":
    sys.exit(main())
