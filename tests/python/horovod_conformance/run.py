#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tries on 2 ranks what Horovod 0.28.1 is known to do, and compares with what it did.

    mpirun -np 2 python -m farandole.as_horovod run.py [modules]             compares with the recorded outcomes
    mpirun -np 2 python run.py --record DIRECTORY [modules]                  under Horovod: records them
    CONFORMANCE_VERBOSE=1 …                                                  names each case, and tells errors

A difference that differences.py does not list, and a listed one that is there no more, is told; exit status 1.
"""

import argparse
import importlib
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import support  # noqa: E402 after its directory is known

support.need("numpy", "tensorflow", "tf_keras") if "--record" not in sys.argv else None

import conformance  # noqa: E402 what it needs is there now
import differences  # noqa: E402

import horovod.tensorflow as hvd  # noqa: E402

MODULES = ["collectives", "reductions", "gradients", "refusals", "process_sets", "aggregation", "joining"]


def recorded_path(directory, rank):
    return pathlib.Path(directory) / f"horovod-0.28.1-rank{rank}.json"


def record(directory, found):
    """Adds the outcomes to the file of this rank."""
    path = recorded_path(directory, hvd.rank())
    known = json.loads(path.read_text()) if path.exists() else {}
    for value in found.values():
        if isinstance(value, dict):
            value.pop("caught_as", None)
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in sorted({**known, **found}.items())]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def compared(found, modules):
    """The deviations from the recorded outcomes, as lines."""
    recorded = json.loads(recorded_path(HERE, hvd.rank()).read_text())
    expected = {name: value for name, value in recorded.items() if name.partition(":")[0] in modules}
    lines = [f"{name}: not recorded" for name in found.keys() - expected.keys()]
    lines += [f"{name}: not tried" for name in expected.keys() - found.keys()]
    unused = {each for each in differences.LISTED if each.module in modules}
    for name in sorted(expected.keys() & found.keys()):
        if conformance.is_same(expected[name], found[name]):
            continue
        listed = differences.listed(name, hvd.rank())
        unused.discard(listed)
        if listed is None:
            lines.append(f"{name}: Horovod {json.dumps(expected[name])}, here {json.dumps(found[name])}")
    unused = {each for each in unused if each.rank in (None, hvd.rank())}
    return lines + [f"{each.module}: {each.pattern}: listed in differences.py, and does not differ" for each in unused]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", metavar="DIRECTORY")
    parser.add_argument("modules", nargs="*", metavar="modules", help=", ".join(MODULES))
    arguments = parser.parse_args()
    modules = arguments.modules or MODULES
    unknown = set(modules) - set(MODULES)
    if unknown:
        parser.error(f"there are no modules {' '.join(sorted(unknown))}; there are {' '.join(MODULES)}")
    conformance.tf.get_logger().setLevel("ERROR")  # functions are traced many times here
    hvd.init()
    if hvd.size() != 2:
        sys.exit(f"outcomes are recorded for 2 ranks, and this job has {hvd.size()}: start it with mpirun -np 2")
    for module in modules:
        importlib.import_module(module)
    found = conformance.outcomes(modules)
    lines = []
    if arguments.record:
        record(arguments.record, found)
    else:
        lines = compared(found, modules)
    wrong = int(hvd.allreduce(conformance.tf.constant(len(lines)), op=hvd.Sum, name="wrong"))
    print("".join(f"[rank {hvd.rank()}] {line}\n" for line in sorted(lines)), end="", flush=True)
    if hvd.rank() == 0:
        print(f"{len(found)} outcomes, {wrong} wrong on all ranks")
    hvd.shutdown()
    sys.exit(1 if wrong else 0)


main()
