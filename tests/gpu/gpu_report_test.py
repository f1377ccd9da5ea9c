#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What gpu_report.py makes of what it is given."""
import copy
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import gpu_report  # noqa: E402

# As CTest 3.25 writes it.
JUNIT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="(empty)" tests="4" failures="1" disabled="0" skipped="1" hostname="" time="0">
  <testcase name="farandole_gpu.threads" classname="farandole_gpu.threads" time="2.5" status="run">
    <system-out>DeviceGradients.Some: not run with 2, 4 ranks: threads need a device each, and there is 1
    [       OK ] DeviceGradients.Some (0 ms)
DeviceGradients.Some: not run with 2, 4 ranks: threads need a device each, and there is 1</system-out>
  </testcase>
  <testcase name="farandole_gpu.sharing.2" classname="farandole_gpu.sharing.2" time="0.01" status="notrun">
    <skipped message="SKIP_RETURN_CODE=77"/>
    <system-out>skipped: NCCL 2.28.9 gives a device to one rank only
</system-out>
  </testcase>
  <testcase name="farandole_gpu.stuck_stream" classname="farandole_gpu.stuck_stream" time="10" status="run">
    <system-out>measured: stuck stream, seconds after the deadline: 0.250</system-out>
  </testcase>
  <testcase name="farandole_gpu.memory" classname="farandole_gpu.memory" time="1" status="fail">
    <failure message=""/>
    <system-out>what went wrong &lt;here&gt;</system-out>
  </testcase>
</testsuite>"""
INFO = {"version": "0.1.0", "build": "0.1.0-GNU", "devices": {
    "version": "CUDA: driver 580.159 (CUDA 13.0), NCCL 2.28.9", "reason": "", "collectives_missing": "", "warnings": [],
    "list": [{"ordinal": 0, "name": "NVIDIA H100", "identity": "GPU-1", "memory_bytes": 85 << 30,
              "compute_capability": "9.0"}]}}
FIGURES = {"bytes": 256 << 20, "ranks": 2, "nccl_group_us": 4.5, "collective_us": 12.0,
           "bring_up": {"ranks": 2, "farandole_s": 0.36, "nccl_s": 0.3},
           "memory": [{"name": "copy", "moved_bytes": 2000000, "p50_us": 1.0},
                      {"name": "reduce_f32", "moved_bytes": 3000000, "p50_us": 1.6},
                      {"name": "reduce_f16", "moved_bytes": 3000000, "p50_us": 2.0},
                      {"name": "pack", "moved_bytes": 1000000, "p50_us": 0.5}]}
ALLREDUCE = [{"ranks": 2, "bytes": 1024, "p50_us": 20.0, "peer_p50_us": 15.0, "ratio": 0.75}]


def report(info=INFO, figures=FIGURES, junit=JUNIT):
    return gpu_report.make_report(info, gpu_report.parse_tests(junit), figures, ALLREDUCE, ["no unpacking"])


def targets(of):
    return {row["what"].split(",")[0].split(" of ")[0]: row for row in of["targets"]}


class Tests(unittest.TestCase):
    def test_results_have_reasons(self):
        rows = {row["name"].rpartition("gpu.")[2]: row for row in gpu_report.parse_tests(JUNIT)}
        self.assertEqual([row["result"] for row in rows.values()], ["passed", "skipped", "passed", "failed"])
        self.assertEqual(rows["sharing.2"]["reason"], "NCCL 2.28.9 gives a device to one rank only")
        self.assertEqual(rows["threads"]["left_out"],
                         ["DeviceGradients.Some: not run with 2, 4 ranks: threads need a device each, and there is 1"])
        self.assertEqual(rows["memory"]["output"], ["what went wrong <here>"])

    def test_targets_are_met_or_missed_or_say_why_neither(self):
        rows = targets(report())
        self.assertEqual({what: row["met"] for what, row in rows.items()},
                         {"reduce_f32": True, "reduce_f16": False, "reduce_bf16": None, "pack": True, "unpack": None,
                          "bring-up to the end": False, "a stuck stream to Timeout": True, "two ranks on one GPU": None})
        self.assertAlmostEqual(rows["reduce_f32"]["value"], 3 / 1.6 / 2)
        self.assertAlmostEqual(rows["bring-up to the end"]["value"], 1.2)
        self.assertEqual(rows["a stuck stream to Timeout"]["value"], 0.25)
        self.assertIn("NCCL 2.28.9", rows["two ranks on one GPU"]["reason"])
        self.assertEqual(rows["unpack"]["reason"], "not measured: no unpacking")

    def test_ranks_that_share_a_device_passed_or_failed(self):
        for status, met in (("run", True), ("fail", False)):
            junit = JUNIT.replace('status="notrun"', f'status="{status}"')
            self.assertIs(targets(report(junit=junit))["two ranks on one GPU"]["met"], met)

    def test_the_double_is_no_gpu(self):
        info = copy.deepcopy(INFO)
        info["devices"]["list"][0]["name"] = "fake device 0"
        made = report(info)
        self.assertTrue(made["is_double"])
        self.assertEqual({row["met"] for row in made["targets"]}, {None})
        page = gpu_report.make_page(made)
        self.assertIn("**Not a GPU result", page)
        self.assertNotIn("| met |", page)

    def test_the_page_has_all(self):
        page = gpu_report.make_page(report())
        self.assertNotIn("Not a GPU result", page)
        for text in ("NVIDIA H100, 85.0 GiB, 9.0", "driver 580.159 (CUDA 13.0), NCCL 2.28.9", "2 passed, 1 failed, 1 skipped",
                     "| pack | 0.5 µs | 2000 GB/s | 1.00 |", "**missed**", "what went wrong <here>", "4.5 µs", "360.0 ms",
                     "| 1024 | 20.0 µs | 15.0 µs | 0.75 |"):
            self.assertIn(text, page)

    def test_without_devices(self):
        info = copy.deepcopy(INFO)
        info["devices"].update(list=[], version="", reason="no NVIDIA driver: libcuda.so.1")
        made = gpu_report.make_report(info, gpu_report.parse_tests(JUNIT), {}, [], ["no NVIDIA driver: libcuda.so.1"])
        self.assertIn("none: no NVIDIA driver: libcuda.so.1", gpu_report.make_page(made))
        self.assertIsNone(targets(made)["pack"]["met"])


if __name__ == "__main__":
    unittest.main()
