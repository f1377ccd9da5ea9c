#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: report_test.py

Tests run.py and report.py: on outputs of programs, and on programs that hang, fail, or skip everything.
"""
import copy
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import report  # noqa: E402
import run  # noqa: E402
import steps  # noqa: E402

INFO = {"version": "0.1.0", "build": "0.1.0-GNU", "devices": {
    "version": "CUDA: driver 580.159 (CUDA 13.0), NCCL 2.28.9", "reason": "", "collectives_missing": "", "warnings": [],
    "list": [{"ordinal": 0, "name": "NVIDIA H100", "identity": "GPU-1", "memory_bytes": 85 << 30,
              "compute_capability": "9.0"}]}}
FIGURES = {"bytes": 256 << 20, "memory": [{"name": "copy", "moved_bytes": 2000000, "p50_us": 1.0},
                                          {"name": "reduce_f32", "moved_bytes": 3000000, "p50_us": 1.6},
                                          {"name": "reduce_f16", "moved_bytes": 3000000, "p50_us": 2.0},
                                          {"name": report.EQUAL_COPY, "moved_bytes": 1000000, "p50_us": 0.4},
                                          {"name": "pack", "moved_bytes": 1000000, "p50_us": 0.5}]}
PASSED = """[==========] 3 tests from 1 test suite ran. (5 ms total)
[  PASSED  ] 2 tests.
[  SKIPPED ] 1 test, listed below:
DeviceGradients.Some: not run with 2, 4 ranks: threads need a device each, and there is 1
"""
ALL_SKIPPED = """on_device.cpp:19: Skipped
no collectives on devices: no NCCL
[  SKIPPED ] Some.Test (0 ms)
[==========] 1 test from 1 test suite ran. (5 ms total)
[  PASSED  ] 0 tests.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Some.Test
"""


def step(**more):
    return steps.Step("a step", 5, ["true"], **more)


def row(name, result="passed", **more):
    return {"name": name, "needs": "device", "result": result, "seconds": 1.0, **more}


ROWS = [row(steps.FIGURES, figures=FIGURES), row(steps.BRING_UP, figures={"ranks": 2, "farandole_s": 0.36, "nccl_s": 0.3}),
        row(steps.STUCK_STREAM, measured={"stuck stream, seconds after the deadline": 0.25}, tests={"passed": 1, "skipped": 0}),
        row(steps.ENQUEUE, figures={"Farandole's allreduce in the caller's order, us": 12.0, "ncclAllReduce, us": 10.0}),
        row(steps.TORCH_ENQUEUE, figures={"Farandole by ctypes, us": 12.0, "torch.distributed.all_reduce, us": 10.0}),
        row(steps.TORCH_ENGINE, figures={"the engine: a step of gradients, us": 900.0,
                                         "torch.distributed: a step of gradients, us": 1000.0}),
        row(steps.TORCH_BACKEND, figures={"farandole, 64 KiB: host time of a call, us": 24.0,
                                          "nccl, 64 KiB: host time of a call, us": 30.0}),
        row(steps.ALL_ALGORITHMS, "skipped", reason="no collectives on devices: no NCCL")]


def targets(rows=None, info=INFO):
    made = report.make_report(info, ROWS if rows is None else rows)
    return {target["what"].split(",")[0].split(" of ")[0]: target for target in made["targets"]}


class Outcomes(unittest.TestCase):
    def test_tests_pass(self):
        came = report.outcome(step(), 0, PASSED)
        self.assertEqual((came["result"], came["tests"]), ("passed", {"passed": 2, "skipped": 1}))
        self.assertEqual(len(came["left_out"]), 1)

    def test_a_filter_that_matches_nothing_fails(self):
        came = report.outcome(step(), 0, "[==========] 0 tests from 0 test suites ran. (0 ms total)\n[  PASSED  ] 0 tests.\n")
        self.assertEqual((came["result"], came["reason"]), ("failed", "its filter matches no test"))

    def test_all_skipped_is_not_passed(self):
        came = report.outcome(step(), 0, ALL_SKIPPED)
        self.assertEqual(came["result"], "skipped")
        self.assertIn("no NCCL", came["reason"])

    def test_a_failure_keeps_its_output(self):
        came = report.outcome(step(), 1, PASSED + "what went wrong <here>\n")
        self.assertEqual((came["result"], came["reason"]), ("failed", "it ended with 1"))
        self.assertIn("what went wrong <here>", came["output"])
        self.assertEqual(report.outcome(step(expected_status=137), 0, PASSED)["result"], "failed")
        self.assertEqual(report.outcome(step(expected_status=137), 137, PASSED)["result"], "passed")

    def test_figures_are_json(self):
        self.assertEqual(report.outcome(step(result="json"), 0, 'a warning\n{"a": 1}\n')["figures"], {"a": 1})
        self.assertEqual(report.outcome(step(result="json"), 0, "nothing\n")["result"], "failed")

    def test_a_program_says_why_it_cannot_run_here(self):
        for result in ("text", "json"):
            came = report.outcome(step(result=result), report.SKIPPED, "building\nno compiler\n")
            self.assertEqual((came["result"], came["reason"]), ("skipped", "no compiler"))
        self.assertEqual(report.outcome(step(result="text"), 1, "no compiler\n")["result"], "failed")
        self.assertEqual(report.outcome(step(), report.SKIPPED, PASSED)["result"], "failed")


class Targets(unittest.TestCase):
    def test_met_or_missed_or_why_neither(self):
        rows = targets()
        self.assertEqual({what: target["met"] for what, target in rows.items()},
                         {"reduce_f32": True, "reduce_f16": False, "reduce_bf16": None, "pack": True, "unpack": None,
                          "bring-up to the end": False, "host time": True, "the same through ctypes": False,
                          "the same through farandole.torch": True, "a step": True, "a stuck stream to Timeout": True, "two ranks on one GPU": None})
        self.assertAlmostEqual(rows["reduce_f32"]["value"], 3 / 1.6 / 2)
        self.assertAlmostEqual(rows["bring-up to the end"]["value"], 1.2)
        self.assertIn("no NCCL", rows["two ranks on one GPU"]["reason"])

    def test_two_ranks_on_one_device(self):
        for result, met in (("passed", True), ("failed", False)):
            self.assertIs(targets([row(steps.ALL_ALGORITHMS, result)])["two ranks on one GPU"]["met"], met)

    def test_the_double_is_no_gpu(self):
        info = copy.deepcopy(INFO)
        info["devices"]["list"][0]["name"] = "fake device 0"
        self.assertEqual({target["met"] for target in targets(info=info).values()}, {None})
        page = report.make_page(report.make_report(info, ROWS))
        self.assertIn("**Not a GPU result", page)
        self.assertNotIn("| met |", page)

    def test_the_page_has_all(self):
        failed = row("another", "failed", reason="it ended with 1", output=["what went wrong <here>"])
        page = report.make_page(report.make_report(INFO, [*ROWS, failed]))
        self.assertNotIn("Not a GPU result", page)
        for text in ("NVIDIA H100, 85.0 GiB, 9.0", "driver 580.159 (CUDA 13.0), NCCL 2.28.9", "7 passed, 1 failed, 1 skipped",
                     "| pack | 0.5 µs | 2000 GB/s | 1.00 | 0.80 |", "| reduce_f32 | 1.6 µs | 1875 GB/s | 0.94 |  |", "**missed**", "what went wrong <here>", "| farandole_s | 0.36 |"):
            self.assertIn(text, page)


class Runs(unittest.TestCase):
    def execute(self, script, limit):
        with tempfile.TemporaryFile() as file:
            status, seconds = run.execute(["bash", "-c", script], None, limit, file)
            file.seek(0)
            return status, seconds, file.read().decode()

    def test_the_status_and_the_output_come(self):
        self.assertEqual(self.execute("echo here; exit 3", 20)[::2], (3, "here\n"))

    def test_a_step_that_hangs_is_ended_with_its_children(self):
        status, seconds, output = self.execute("sleep 600 & echo $!; wait", 1)
        self.assertIsNone(status)
        self.assertLess(seconds, 60)
        self.assertFalse(pathlib.Path(f"/proc/{output.strip()}/cmdline").exists()
                         and b"sleep" in pathlib.Path(f"/proc/{output.strip()}/cmdline").read_bytes())

    def test_nothing_but_skips_is_no_success(self):
        on_the_host = row("kernels", needs="nothing", tests={"passed": 1, "skipped": 0})
        self.assertEqual(run.status_of([row("machine"), on_the_host, row("tests", "skipped")]), report.SKIPPED)
        self.assertEqual(run.status_of([row("tests", tests={"passed": 1, "skipped": 0})]), 0)
        self.assertEqual(run.status_of([row("tests", tests={"passed": 1, "skipped": 0}), row("more", "failed")]), 1)

    def test_a_step_is_skipped_after_another_that_did_not_pass(self):
        def why(result):
            return run.why_not_after(step(after="a build"), [row("a build", result, reason="no compiler")])

        self.assertEqual(why("passed"), "")
        self.assertEqual(why("skipped"), "'a build' was skipped: no compiler")
        self.assertEqual(why("failed"), "'a build' failed: no compiler")
        self.assertEqual(run.why_not_after(step(), []), "")
        self.assertIn("was not run", run.why_not_after(step(after="a build"), []))

    def test_steps_come_after_steps_that_exist(self):
        rows = steps.steps(8, False)
        for number, each in enumerate(rows):
            self.assertIn(each.after, ("", *steps.names(rows[:number])))

    def test_steps_have_names_of_their_own(self):
        names = steps.names(steps.steps(8, False))
        self.assertEqual(len(names), len(set(names)))
        self.assertLessEqual({steps.FIGURES, steps.BRING_UP, steps.STUCK_STREAM, steps.ALL_ALGORITHMS}, set(names))


if __name__ == "__main__":
    unittest.main()
