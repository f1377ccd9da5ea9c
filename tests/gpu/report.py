# SPDX-License-Identifier: Apache-2.0
"""Makes the report of a run: each step's outcome, the targets, and the page. No input or output; run.py does that."""
import json
import re

import steps

MIB = 1 << 20
SKIPPED = 77  # exit status of a program that cannot run here
MOST_LEFT_OUT = 3  # tests of a step that the page names one by one
DOUBLE = "not a GPU result: the driver is the double of tests/support/host_device"
# The devices of the double are called so.
DOUBLE_NAME = "fake device "


def is_double(devices):
    return any(device["name"].startswith(DOUBLE_NAME) for device in devices)


# The outcome of a step.


def gtest_counts(output):
    """(passed, skipped, ran) tests of all processes of a step."""
    def total(pattern):
        return sum(int(number) for number in re.findall(pattern, output, re.MULTILINE))

    return (total(r"^\[  PASSED  \] (\d+) tests?\."), total(r"^\[  SKIPPED \] (\d+) tests?, listed"),
            total(r"^\[==========\] (\d+) tests? from \d+ test suites? ran"))


def outcome_of_tests(row, output):
    passed, skipped, ran = gtest_counts(output)
    row["tests"] = {"passed": passed, "skipped": skipped}
    lines = output.splitlines()
    row["left_out"] = sorted({line.strip() for line in lines if "not run with " in line and not line.startswith("[")})
    if row["result"] == "passed" and passed + skipped == 0:
        # One that is killed on purpose leaves no line of GoogleTest; its peers do.
        row.update(result="failed", reason="its filter matches no test" if ran == 0 else "no test passed")
    elif row["result"] == "passed" and passed == 0:
        reasons = [line.strip() for line in lines if line.strip() and not line.startswith("[") and "Skipped" not in line]
        row.update(result="skipped", reason="all tests were skipped: " + (reasons[-1] if reasons else "no reason was given"))
    return row


def outcome_of_json(row, output):
    start = output.find("{")
    try:
        row["figures"] = json.loads(output[start:])
    except ValueError:
        row.update(result="failed", reason="what it printed is no JSON")
    return row


def outcome(step, status, output):
    """The result and what else is known. @param status  of the process; None: time ended; a text: it did not start"""
    row = {"result": "passed"}
    if status != step.expected_status:
        if status is None:
            reason = "it did not end in time"
        elif isinstance(status, str):
            reason = status
        else:
            reason = f"it ended with {status}" + (f", not with {step.expected_status}" if step.expected_status else "")
        row.update(result="failed", reason=reason)
    measured = [line[len("measured: "):].rpartition(": ") for line in output.splitlines() if line.startswith("measured: ")]
    row["measured"] = {what: float(value) for what, _, value in measured}
    if status == SKIPPED and step.result != "tests":
        return {**row, "result": "skipped", "reason": (output.strip() or "no reason was given").splitlines()[-1]}
    if step.result == "tests":
        row = outcome_of_tests(row, output)
    elif step.result == "json" and row["result"] == "passed":
        row = outcome_of_json(row, output)
    if row["result"] == "failed":
        row["output"] = [line.rstrip() for line in output.splitlines()][-40:]
    return row


def line_of(row):
    """The line printed when a step has ended."""
    tests = row.get("tests")
    what = row.get("reason") or (f"{tests['passed']} tests passed" + f", {tests['skipped']} skipped" * (tests["skipped"] > 0)
                                 if tests else "")
    return f"{row['result']:8} {row['seconds']:6.1f} s  {row['name']}{': ' + what if what else ''}"


# Targets.


EQUAL_COPY = "copy of the gradients' size"


def bandwidths(figures):
    """GB/s, read and written, by name, and the ratio to the copy between memories of the device.

    Rows of packing also have the ratio to a copy of the gradients' size, because a shorter copy has a lower rate.
    """
    rows = {row["name"]: {"p50_us": row["p50_us"], "gbs": row["moved_bytes"] / row["p50_us"] / 1e3}
            for row in figures.get("memory", [])}
    for row in rows.values():
        row["of_copy"] = row["gbs"] / rows["copy"]["gbs"]
    for name in ("pack", "unpack"):
        if name in rows and EQUAL_COPY in rows:
            rows[name]["of_equal_copy"] = rows[name]["gbs"] / rows[EQUAL_COPY]["gbs"]
    return rows


def at_least(what, value, bound):
    return {"what": what, "target": f"≥ {bound}", "value": value, "met": None if value is None else value >= bound}


def at_most(what, value, bound):
    return {"what": what, "target": f"≤ {bound}", "value": value, "met": None if value is None else value <= bound}


def named(rows, name):
    return next((row for row in rows if row["name"] == name), {"result": "skipped", "reason": "the step was not run"})


def ratio_of(row, ours, theirs):
    figures = row.get("figures")
    return figures[ours] / figures[theirs] if figures else None


def judge(report):
    """The targets, each met, missed, or neither, with the reason."""
    rows, rates = report["steps"], report["bandwidths"]
    memory, up = named(rows, steps.FIGURES), named(rows, steps.BRING_UP)
    stuck, shared = named(rows, steps.STUCK_STREAM), named(rows, steps.ALL_ALGORITHMS)
    mib = memory.get("figures", {}).get("bytes", 0) / MIB
    targets = []
    for names, text, bound in ((("reduce_f32", "reduce_f16", "reduce_bf16"), f"of a device-to-device copy at {mib:g} MiB", 0.9),
                               (("pack", "unpack"), "of ResNet-50's 161 tensors, of that copy", 0.85)):
        for name in names:
            targets.append({**at_least(f"{name}, {text}", rates.get(name, {}).get("of_copy"), bound), "step": memory})
    targets.append({**at_most("bring-up to the end of the first allreduce, of NCCL alone", ratio_of(up, "farandole_s", "nccl_s"),
                              1.1), "step": up})
    enqueue, by_torch = named(rows, steps.ENQUEUE), named(rows, steps.TORCH_ENQUEUE)
    targets.append({**at_most("host time of an enqueued allreduce in the caller's order, of ncclAllReduce",
                              ratio_of(enqueue, "Farandole's allreduce in the caller's order, us", "ncclAllReduce, us"), 1.5),
                    "step": enqueue})
    targets.append({**at_most("the same through ctypes, of torch's NCCL process group",
                              ratio_of(by_torch, "Farandole by ctypes, us", "torch.distributed.all_reduce, us"), 1), "step": by_torch})
    backend = named(rows, steps.TORCH_BACKEND)
    targets.append({**at_most("the same through farandole.torch, 64 KiB, of torch's NCCL process group",
                              ratio_of(backend, *(f"{name}, 64 KiB: host time of a call, us" for name in ("farandole", "nccl"))), 1),
                    "step": backend})
    by_engine = named(rows, steps.TORCH_ENGINE)
    targets.append({**at_most("a step of ResNet-50's 161 gradients by the engine, of torch's NCCL process group",
                              ratio_of(by_engine, "the engine: a step of gradients, us",
                                       "torch.distributed: a step of gradients, us"), 1), "step": by_engine})
    late = next((value for what, value in stuck.get("measured", {}).items() if what.startswith("stuck stream")), None)
    targets.append({**at_most("a stuck stream to Timeout, seconds after the deadline", late, 1), "step": stuck})
    targets.append({"what": "two ranks on one GPU, every algorithm", "target": "correct", "value": shared["result"],
                    "met": {"passed": True, "failed": False}.get(shared["result"]), "step": shared})
    for target in targets:
        step = target.pop("step")
        if report["is_double"]:
            target.update(met=None, reason=DOUBLE)
        elif target["met"] is None:
            target["reason"] = "not measured: " + step.get("reason", "the step has no such figure")
    return targets


def make_report(info, rows):
    devices = info["devices"]
    report = {"is_double": is_double(devices["list"]), "devices": devices["list"], "versions": devices["version"],
              "no_devices": devices["reason"], "no_collectives": devices["collectives_missing"],
              "warnings": devices["warnings"], "farandole": info["version"], "build": info["build"], "steps": rows,
              "bandwidths": bandwidths(named(rows, steps.FIGURES).get("figures", {}))}
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


def page_of_steps(rows):
    count = {result: sum(row["result"] == result for row in rows) for result in ("passed", "failed", "skipped")}
    lines = ["## Steps", "", f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped.", ""]
    cells = []
    for row in rows:
        tests = row.get("tests", {})
        left_out = row.get("left_out", [])
        if len(left_out) > MOST_LEFT_OUT:
            left_out = [f"{len(left_out)} tests were not run with several ranks, as {left_out[0]}"]
        notes = [row["reason"], *left_out] if "reason" in row else left_out
        cells.append((row["name"], row["result"], f"{row['seconds']:.1f}", tests.get("passed", ""), "; ".join(notes)))
    lines += table(("step", "", "s", "tests passed", "what was left out, and why"), cells)
    for row in rows:
        if "output" in row:
            lines += [f"The end of “{row['name']}”:", "", "```", *row["output"], "```", ""]
    return lines


def page_of_figures(report):
    rows = report["steps"]
    lines = ["## Figures", ""]
    rates = [(f"{name}", f"{row['p50_us']:.1f} µs", f"{row['gbs']:.0f} GB/s", f"{row['of_copy']:.2f}",
              f"{row['of_equal_copy']:.2f}" if "of_equal_copy" in row else "")
             for name, row in report["bandwidths"].items()]
    for row in named(rows, steps.TORCH_FIGURES).get("figures", {}).get("memory", []):
        rate = row["moved_bytes"] / row["p50_us"] / 1e3
        of_copy = rate / report["bandwidths"]["copy"]["gbs"] if "copy" in report["bandwidths"] else None
        rates.append((row["name"], f"{row['p50_us']:.1f} µs", f"{rate:.0f} GB/s", number(of_copy), ""))
    lines += table(("on the device", "median", "read and written", "of our copy", "of a copy of equal size"), rates)
    costs = []
    for row in rows:
        for what, value in row.get("figures", {}).items():
            if isinstance(value, (int, float)) and what not in ("bytes", "ranks"):
                costs.append((row["name"], what, number(float(value))))
    return lines + table(("step", "figure", "value"), costs)


def make_page(report):
    lines = ["# Farandole on GPUs", ""]
    if report["is_double"]:
        lines += [f"**{DOUBLE[0].upper()}{DOUBLE[1:]}. Its figures mean nothing.**", ""]
    rows = [("device " + str(device["ordinal"]),
             f"{device['name']}, {device['memory_bytes'] / 2**30:.1f} GiB, {device['compute_capability']}")
            for device in report["devices"]]
    rows.append(("versions", report["versions"] or f"none: {report['no_devices']}"))
    rows.append(("Farandole", f"{report['farandole']} ({report['build']})"))
    rows += [(key, report[key]) for key in ("made", "nccl") if key in report]
    rows += [("no collectives", report["no_collectives"])] if report["no_collectives"] else []
    rows += [("warning", warning) for warning in report["warnings"]]
    lines += table(("", ""), rows)
    lines += ["## Targets", ""]
    lines += table(("what", "target", "came", ""),
                   [(row["what"], row["target"], number(row["value"]), verdict(row)) for row in report["targets"]])
    return "\n".join(lines + page_of_steps(report["steps"]) + page_of_figures(report))
