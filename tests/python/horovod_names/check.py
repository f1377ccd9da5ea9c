# SPDX-License-Identifier: Apache-2.0
"""Checks every public name of Horovod, in one process. The name is in the table. If the table says that Farandole has the
name, it exists and its parameters accept what Horovod's accept; otherwise, its use raises an error that says what to use
instead."""

import importlib
import inspect
import json
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import support  # noqa: E402

support.need("numpy", "tensorflow")

import page  # noqa: E402

import farandole  # noqa: E402
from farandole._horovod import names  # noqa: E402

RECORD = json.loads((HERE / "horovod-0.28.1.json").read_text())


def rows():
    """The rows of the table, with what was recorded for each."""
    for module, recorded in RECORD["names"].items():
        for name, known in recorded.items():
            row = names.find(module, name)
            if row is not None:
                yield row, known


def what_is_refused(ours, parameters):
    """Why a call with Horovod's parameters, by place or by name, would not arrive; None if it would."""
    try:
        mine = list(inspect.signature(ours).parameters.values())
    except (TypeError, ValueError):
        return None  # written in C
    kinds = {each.kind for each in mine}
    by_name = {each.name for each in mine if each.kind != each.POSITIONAL_ONLY}
    by_place = [each.name for each in mine if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    named = [each.rstrip("=") for each in parameters if not each.startswith("*")]
    if inspect.Parameter.VAR_KEYWORD not in kinds and set(named) - by_name:
        return f"no parameter {sorted(set(named) - by_name)}"
    if inspect.Parameter.VAR_POSITIONAL not in kinds and by_place[: len(named)] != named:
        return f"parameters {by_place}, in Horovod {named}"
    required = [each.name for each in mine if each.default is each.empty and each.kind == each.POSITIONAL_OR_KEYWORD]
    optional = {each.rstrip("=") for each in parameters if each.endswith("=")}
    needless = [each for each in required if each in optional or each not in named]
    if needless and not any(each.startswith("*") for each in parameters):
        return f"{needless} can be left out in Horovod"
    return None


class NamesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        farandole.install_as_horovod()

    def test_the_table_has_the_names_of_horovod(self):
        for module, recorded in RECORD["names"].items():
            self.assertEqual(sorted(names.ROWS[module]), sorted(recorded), module)
        self.assertEqual(set(names.ROWS), set(RECORD["names"]))

    def test_every_module_is_there_or_has_a_text(self):
        for module in RECORD["modules"]:
            with self.subTest(module):
                if module in names.MODULES:
                    self.assertEqual(importlib.import_module(module).__name__, module)
                else:
                    instead = names.missing_module(module)
                    self.assertTrue(instead)
                    with self.assertRaises(ModuleNotFoundError) as raised:
                        importlib.import_module(module)
                    self.assertIn(instead, str(raised.exception))

    def test_names(self):
        for row, known in rows():
            with self.subTest(f"{row.module}.{row.name}"):
                module = importlib.import_module(row.module)
                if row.state == names.MISSING:
                    with self.assertRaises(AttributeError) as raised:
                        getattr(module, row.name)
                    self.assertIn(row.note, str(raised.exception))
                    with self.assertRaises(ImportError) as raised:
                        exec(f"from {row.module} import {row.name}", {})
                    self.assertIn(row.note, str(raised.exception))
                    continue
                ours = getattr(module, row.name)
                exec(f"from {row.module} import {row.name}", {})
                self.check_parameters(ours, known)

    def check_parameters(self, ours, known):
        if isinstance(known, dict):  # a class; a function may stand for it
            if not inspect.isclass(ours):
                self.assertTrue(callable(ours))
                return
            self.assertIsNone(what_is_refused(ours, known["__init__"]))
            for method, parameters in known.items():
                if method != "__init__":
                    self.assertIsNone(what_is_refused(_bound(ours, method), parameters), method)
        elif isinstance(known, list):
            self.assertIsNone(what_is_refused(ours, known))

    def test_versions(self):
        import horovod

        self.assertEqual(horovod.__version__, RECORD["version"])
        self.assertNotEqual(farandole.__version__, RECORD["version"])

    def test_unknown_names(self):
        import horovod.tensorflow as hvd

        with self.assertRaisesRegex(AttributeError, "coming-from-horovod.md"):
            hvd.no_such_name
        with self.assertRaisesRegex(ImportError, "coming-from-horovod.md"):
            from horovod.tensorflow import no_such_name  # noqa: F401
        self.assertFalse(hasattr(hvd, "__no_such__"))

    def test_import_of_all_names(self):
        found = {}
        exec("from horovod.tensorflow import *", found)
        self.assertLessEqual({"init", "allreduce", "SyncBatchNormalization"}, set(found))

    def test_modules_as_attributes(self):
        import horovod.tensorflow as hvd

        self.assertIn("allreduce", dir(hvd))
        self.assertEqual(hvd.mpi_ops.__name__, "horovod.tensorflow.mpi_ops")
        self.assertIs(hvd.mpi_ops._basics, farandole.tensorflow.mpi_ops._basics)

    def test_the_page_is_current(self):
        self.assertEqual(page.PAGE.read_text(), page.renewed(), f"run {Path(page.__file__).name}")


def _bound(kind, method):
    found = inspect.getattr_static(kind, method)
    function = getattr(kind, method)
    if isinstance(found, (staticmethod, classmethod)) or not inspect.isfunction(function):
        return function
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[1:]

    def bound():
        """Stands for the method of an object."""

    bound.__signature__ = signature.replace(parameters=parameters)
    return bound


class HelpersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        farandole.install_as_horovod()

    def test_common_util(self):
        import os

        from horovod.common import util

        self.assertTrue(util.is_version_greater_equal_than("2.12.0", "2.9.1"))
        self.assertFalse(util.is_version_greater_equal_than("2.12.0rc1", "2.12.0"))
        for arguments in (("2.12.0", "2.12"), (2, "2.12.0")):
            with self.assertRaises(ValueError):
                util.is_version_greater_equal_than(*arguments)
        self.assertTrue(util.extension_available("tensorflow"))
        self.assertFalse(util.extension_available("torch") or util.extension_available("no_such"))
        util.check_extension("horovod.tensorflow", "HOROVOD_WITH_TENSORFLOW", __file__, "mpi_lib")
        with self.assertRaisesRegex(ImportError, "horovod.torch"):
            util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2")
        self.assertEqual((util.mpi_built(verbose=False), util.gloo_built()), (farandole.mpi_built(), False))
        self.assertEqual(util.nccl_built(), farandole.nccl_built())
        self.assertFalse(util.ddl_built() or util.ccl_built())
        self.assertEqual([util.num_rank_is_power_2(n) for n in (0, 1, 2, 3, 8)], [False, True, True, False, True])
        self.assertEqual(util.split_list(list(range(7)), 3), [[0, 1, 2], [3, 4], [5, 6]])
        self.assertEqual(util.split_list([1], 2), [[1], []])
        self.assertTrue(util.is_iterable([]) and not util.is_iterable(1))
        self.assertTrue(util.get_extension_full_path("/a/b.py", "c", "d").startswith("/a/c/d."))
        with util.env(FARANDOLE_TEST="1", OTHER_TEST=None):
            self.assertEqual(os.environ["FARANDOLE_TEST"], "1")
        self.assertNotIn("FARANDOLE_TEST", os.environ)
        calls = []
        cached = util._cache(lambda *args, **kwargs: calls.append(args))
        cached(1, a=2), cached(1, a=2), cached(1, a=3)
        self.assertEqual(len(calls), 2)
        chosen = util.get_average_backwards_compatibility_fun(farandole)
        self.assertEqual(chosen(None, None), farandole.Average)
        with self.assertWarns(DeprecationWarning):
            self.assertEqual(chosen(None, False), farandole.Sum)
        with self.assertRaisesRegex(ValueError, "supersedes"):
            chosen(farandole.Sum, True)

    def test_tensorflow_util(self):
        import tensorflow as tf
        from horovod.tensorflow import _cache, _executing_eagerly, _make_subgraph, gpu_available, util

        self.assertTrue(_executing_eagerly())
        inside = []
        self.assertEqual(_make_subgraph(lambda x: inside.append(_executing_eagerly()) or x + 1)(tf.constant(1)).numpy(), 2)
        self.assertEqual(inside, [False])
        with tf.Graph().as_default():
            self.assertFalse(_executing_eagerly())
        calls = []
        cached = _cache(calls.append)
        cached(1), cached(1)
        with tf.Graph().as_default():
            cached(1)
        self.assertEqual(calls, [1, 1])
        variables = [tf.Variable(1.0), [tf.Variable(2.0)]]
        refs = util.vars_to_refs(variables)
        self.assertEqual(len({refs}), 1)
        back = util.refs_to_vars(refs)
        self.assertIs(back[0], variables[0])
        self.assertIs(back[1][0], variables[1][0])
        self.assertEqual(gpu_available("tensorflow", verbose=False), bool(tf.config.list_physical_devices("GPU")))
        self.assertFalse(gpu_available("torch"))

    def test_runner(self):
        import os
        import threading
        from unittest import mock

        from horovod.runner.common.util import env
        from horovod.runner.util import threads

        for variables, expected in (
            ({}, (0, 1)),
            ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"}, (1, 3)),
            ({"HOROVOD_RANK": "2", "HOROVOD_SIZE": "4", "PMI_RANK": "0", "PMI_SIZE": "9"}, (2, 4)),
        ):
            with mock.patch.dict(os.environ, variables, clear=True):
                self.assertEqual(env.get_env_rank_and_size(), expected)
        with mock.patch.dict(os.environ, {"PMI_RANK": "0"}, clear=True), self.assertRaises(RuntimeError):
            env.get_env_rank_and_size()
        self.assertTrue(env.is_exportable("PATH") and not env.is_exportable("OLDPWD"))
        self.assertFalse(env.is_kubeflow_mpi())
        doubled = threads.execute_function_multithreaded(lambda x: 2 * x, [[n] for n in range(10)], True, 3)
        self.assertEqual(doubled, {n: 2 * n for n in range(10)})
        event, done = threading.Event(), []
        thread = threads.on_event(event, done.append, ("x",), stop=threading.Event(), daemon=False)
        event.set()
        thread.join()
        self.assertEqual(done, ["x"])
        for call in (lambda: threads.in_thread(print, "x"), lambda: threads.on_event(event, print, daemon=False)):
            with self.assertRaises(ValueError):
                call()


if __name__ == "__main__":
    unittest.main(verbosity=2)
