# SPDX-License-Identifier: Apache-2.0
"""Rank and size, build information, Horovod's variables and module names, elastic states, init after shutdown."""

import contextlib
import ctypes
import importlib
import io
import json
import os
import sys
import tempfile

import support

support.need("numpy")

import farandole
import farandole.numpy as collectives
from farandole import elastic, errors, objects
from farandole._horovod import environment as horovod_environment

FIRST = farandole.ProcessSet([0])


class PlaceTest(support.RankedTest):
    def test_place(self):
        rank, size = farandole.rank(), farandole.size()
        self.assertEqual(collectives.allgather([rank]).tolist(), list(range(size)))
        host_of = objects.allgather_object(os.environ.get("FARANDOLE_HOST_ID"))
        hosts = [[each for each in range(size) if host_of[each] == host] for host in dict.fromkeys(host_of)]
        mine = next(host for host in hosts if rank in host)
        local = mine.index(rank)
        self.assertEqual((farandole.local_rank(), farandole.local_size()), (local, len(mine)))
        across = [host for host in hosts if len(host) > local]
        self.assertEqual((farandole.cross_rank(), farandole.cross_size()), (across.index(mine), len(across)))
        self.assertEqual(farandole.is_homogeneous(), len({len(host) for host in hosts}) == 1)

    def test_build_information(self):
        backend = farandole.info()["backend"]
        if "FARANDOLE_RANK" in os.environ:
            self.assertIn(backend, ("local", "tcp"))
            self.assertFalse(farandole.mpi_enabled())
            with self.assertRaises(errors.InvalidArgument):
                farandole.mpi_threads_supported()
        else:
            self.assertIn(backend, ("mpi_openmpi", "mpi_mpich"))
            self.assertTrue(farandole.mpi_built() and farandole.mpi_enabled())
            self.assertTrue(farandole.mpi_threads_supported())
        self.assertFalse(farandole.gloo_built() or farandole.gloo_enabled() or farandole.rocm_built())
        self.assertTrue(farandole.nccl_built() == 0 or farandole.cuda_built())
        found = farandole.info()
        self.assertEqual((found["version"], found["size"]), (farandole.__version__, farandole.size()))
        self.assertRegex(str(found), rf"(?m)^version +{farandole.__version__}$")
        self.assertIn(f"rank {farandole.rank()} of {farandole.size()} on ", repr(found))
        self.assertLessEqual(max(map(len, str(found).splitlines())), 140)
        places = [os.path.join(directory, "lib") for directory in farandole.__path__]
        library = os.path.realpath(os.path.dirname(found["library"]))
        self.assertIn(library, [os.path.realpath(place) for place in places])

    def test_only_the_symbols_of_mpi_are_global(self):
        def is_global(name):
            return hasattr(ctypes.CDLL(None), name)

        self.assertFalse(is_global("farandole_version"))
        # Farandole's and MPI's components look for MPI there.
        self.assertEqual(is_global("MPI_Query_thread"), farandole.mpi_enabled())

    def test_init_refuses_invalid_arguments(self):
        with self.assertRaisesRegex(errors.Unsupported, "process sets"):
            farandole.init(comm=[0])
        with self.assertRaises(errors.InvalidArgument):
            farandole.init(comm="world")
        with self.assertRaisesRegex(ValueError, "differ"):
            farandole.init(process_sets=[farandole.ProcessSet([0]), farandole.ProcessSet([0])])
        with self.assertRaisesRegex(ValueError, "add_process_set"):
            farandole.init(process_sets=[farandole.ProcessSet([0])])


class TimelineTest(support.RankedTest):
    def run_calls(self, mark_cycles):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "timeline.json")
            farandole.start_timeline(path, mark_cycles)
            collectives.allreduce([1.0, 2.0], name="summed")
            collectives.allgather([[1.0]], name="gathered")
            farandole.stop_timeline()
            collectives.barrier()
            self.assertEqual(os.path.exists(path), farandole.rank() == 0)
            if farandole.rank() != 0:
                return []
            with open(path) as file:
                return json.load(file)

    def test_rows(self):
        events = self.run_calls(mark_cycles=True)
        if farandole.rank() != 0:
            return
        rows = {each["args"]["name"]: each["pid"] for each in events if "name" in each.get("args", {})}
        for tensor, kind in {"summed": "ALLREDUCE", "gathered": "ALLGATHER"}.items():
            row = [each for each in events if each["pid"] == rows[tensor] and each["ph"] != "M"]
            names = [each.get("name") for each in row]
            self.assertEqual(names[:3], [f"NEGOTIATE_{kind}", None, kind])
            self.assertIn(f"FARANDOLE_{kind}", names)
            begins, ends = ([each["ts"] for each in row if each["ph"] == phase] for phase in "BE")
            self.assertEqual(len(begins), len(ends))
            for span in row:
                if span["ph"] == "X":
                    self.assertTrue(begins[1] <= span["ts"] <= span["ts"] + span["dur"] <= ends[1] + 0.01, row)
        self.assertIn("CYCLE_START", [each.get("name") for each in events])
        self.assertIn("start_time_since_epoch_in_micros", events[0]["args"])

    def test_without_cycles_and_twice(self):
        for _ in range(2):
            events = self.run_calls(mark_cycles=False)
            self.assertNotIn("CYCLE_START", [each.get("name") for each in events])

    def test_a_file_that_cannot_be_written(self):
        if farandole.rank() == 0:
            with self.assertRaisesRegex(errors.InvalidArgument, "/no such directory/x.*No such file"):
                farandole.start_timeline("/no such directory/x")
        farandole.stop_timeline()


class StaticProcessSetTest(support.RankedTest):
    def test_it_is_there_from_the_start(self):
        self.assertEqual(FIRST.included(), farandole.rank() == 0)
        self.assertIs(farandole.process_set_by_id(FIRST.process_set_id), FIRST)
        if FIRST.included():
            self.assertEqual(collectives.allreduce([3.0], process_set=FIRST).tolist(), [3.0])


def check_after_the_end():
    """Nothing works after shutdown, and everything says why."""
    assert not farandole.is_initialized()
    assert FIRST.process_set_id is None
    for call in (farandole.rank, lambda: collectives.allreduce([1.0]), lambda: farandole.add_process_set([0])):
        try:
            call()
        except ValueError as error:
            assert "has not been initialized" in str(error), error
        else:
            raise AssertionError("worked after shutdown")


class HorovodVariablesTest(support.RankedTest):
    def test_translation(self):
        settings, ignored = horovod_environment.translate(
            {
                "HOROVOD_FUSION_THRESHOLD": "1048576",
                "HOROVOD_STALL_CHECK_TIME_SECONDS": "5",
                "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "60",
                "FARANDOLE_TIMEOUT": "7",
                "HOROVOD_LOG_LEVEL": "TRACE",
                "HOROVOD_RANK": "1",
                "HOROVOD_CYCLE_TIME": "5",
                "HOROVOD_AUTOTUNE": "1",
                "PATH": "/bin",
            }
        )
        self.assertEqual(
            settings, {"FARANDOLE_FUSION_BYTES": "1048576", "FARANDOLE_WARN_AFTER": "5", "FARANDOLE_LOG": "debug"}
        )
        self.assertEqual(ignored, ["HOROVOD_AUTOTUNE", "HOROVOD_CYCLE_TIME"])
        self.assertEqual(horovod_environment.translate({"HOROVOD_STALL_CHECK_DISABLE": "0"}), ({}, []))
        timeline, _ = horovod_environment.translate({"HOROVOD_TIMELINE": "a", "HOROVOD_TIMELINE_MARK_CYCLES": "1"})
        self.assertEqual(timeline, {"FARANDOLE_TIMELINE": "a", "FARANDOLE_TIMELINE_CYCLES": "on"})
        self.assertEqual(horovod_environment.translate({"HOROVOD_TIMELINE": "DYNAMIC"}), ({}, []))
        odd, _ = horovod_environment.translate(
            {
                "HOROVOD_FUSION_THRESHOLD": "0",
                "HOROVOD_LOG_LEVEL": "loud",
                "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "soon",
            }
        )
        self.assertEqual(odd, {"FARANDOLE_FUSION_BYTES": "1"})
        week, _ = horovod_environment.translate({"HOROVOD_STALL_CHECK_DISABLE": "1"})
        self.assertEqual(week, {"FARANDOLE_WARN_AFTER": "604800"})


class HorovodNamesTest(support.RankedTest):
    def test_imports(self):
        farandole.install_as_horovod()
        farandole.install_as_horovod()
        import horovod
        import horovod.common.exceptions
        from horovod.common.process_sets import ProcessSet

        self.assertIs(horovod.rank, farandole.rank)
        self.assertIs(horovod.common.exceptions.HorovodInternalError, errors.HorovodInternalError)
        self.assertIs(ProcessSet, farandole.ProcessSet)
        self.assertIs(importlib.import_module("horovod.common.elastic").State, elastic.State)
        with self.assertRaisesRegex(ModuleNotFoundError, "no horovod.torch: Farandole is for TensorFlow"):
            import horovod.torch

    def test_a_script(self):
        from farandole import as_horovod

        with tempfile.TemporaryDirectory() as directory:
            script = os.path.join(directory, "script.py")
            with open(script, "w") as file:
                file.write("import sys, horovod\nassert __name__ == '__main__'\nhorovod.size.seen = sys.argv[1:]\n")
            before = sys.argv, list(sys.path)
            try:
                as_horovod.main([script, "--flag", "x"])
            finally:
                sys.argv, sys.path = before
        self.assertEqual(farandole.size.seen, ["--flag", "x"])
        with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()) as said:
            as_horovod.main([])
        self.assertEqual(ended.exception.code, 2)
        self.assertRegex(said.getvalue(), r"^farandole\.as_horovod: the program is missing\nusage: ")
        with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()) as said:
            as_horovod.main(["nowhere.py"])
        self.assertEqual((ended.exception.code, said.getvalue()), (2, "farandole.as_horovod: there is no program nowhere.py\n"))


class ElasticTest(support.RankedTest):
    def test_state_comes_from_rank_0_and_is_restored(self):
        state = elastic.ObjectState(batch=farandole.rank() + 10, notes=["a"])
        resets = []
        state.register_reset_callbacks([lambda: resets.append(state.batch)])

        @elastic.run
        def train(state, extra):
            if not resets:
                self.assertEqual(state.batch, 10)
                state.batch = 11
                state.commit()
                state.batch = 12
                state.restore()
                self.assertEqual(state.batch, 11)
                raise errors.HostsUpdatedInterrupt(skip_sync=False)
            return state.batch + extra

        self.assertEqual(train(state, 5), 16)
        self.assertEqual(resets, [11])

    def test_a_failed_job_is_not_taken_up_again(self):
        state = elastic.ObjectState(batch=0)

        @elastic.run
        def train(state):
            raise errors.PeerLost("rank 1 is gone")

        with self.assertRaises(errors.HorovodInternalError):
            train(state)


if __name__ == "__main__":
    support.main([FIRST])
    check_after_the_end()
