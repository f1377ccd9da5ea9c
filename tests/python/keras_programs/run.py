# SPDX-License-Identifier: Apache-2.0
"""Compares small programs of the kinds that Keras users write between one process and all ranks.

    mpirun -np 2 python run.py [--full] [--list] [names of programs or modules]

Without --full those that are marked `full_only` are left out: other programs run the same code, which a comment names.
Programs that are named run in any case. Exit status: 1 if a program gives something else on the ranks than alone.
"""

import argparse
import importlib
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import support  # noqa: E402 after its directory is known

support.need("numpy", "tensorflow", "keras")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import comparison  # noqa: E402 what it needs is there now
import tensorflow as tf  # noqa: E402

import farandole.tensorflow as hvd  # noqa: E402

TOPICS = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in ("comparison", "run"))


def chosen(names, full):
    """The programs that are asked for: by their names, by those of their modules, or none for all of them."""
    for topic in TOPICS:
        importlib.import_module(topic)
    programs = comparison.PROGRAMS
    unknown = [name for name in names if name not in programs and name not in TOPICS]
    if unknown:
        sys.exit(f"there are no programs or modules of the names {' '.join(unknown)}: see --list")
    by_topic = [each for each in programs.values() if not names or each.topic in names]
    wanted = [each for each in by_topic if full or not each.full_only]
    return wanted + [programs[name] for name in names if name in programs and programs[name] not in wanted]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="also the programs that are marked full_only")
    parser.add_argument("--list", action="store_true", help="only list the programs")
    parser.add_argument("names", nargs="*", help="programs or modules; without any, all")
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)  # the programs are small, and the ranks share the cores
    programs = chosen(arguments.names, arguments.full)
    if arguments.list:
        for each in programs:
            summary = each.function.__doc__.strip().splitlines()[0]
            print(f"{each.topic}.{each.name}{' (full only)' if each.full_only else ''}: {summary}")
        return
    hvd.init()
    all_right = comparison.run(programs)
    hvd.shutdown()
    sys.exit(0 if all_right else 1)


main()
