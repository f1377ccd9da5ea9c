# SPDX-License-Identifier: Apache-2.0
"""tf.data's service over ranks. Each rank prepares data in a thread and trains in the main thread, so one job has both
parts."""

from tensorflow_support import OpTest, main

import contextlib
import dataclasses
import io
import os
import stat
import tempfile
import threading
from unittest import mock

import tensorflow as tf

import farandole
import farandole.numpy as collectives
from farandole import objects
from farandole.tensorflow.data import _registry, compute_worker
from farandole.tensorflow.data.compute_service import TfDataServiceConfig, send_to_data_service, tf_data_service

ELEMENTS = 40


def elements():
    return tf.data.Dataset.range(ELEMENTS).batch(4).map(lambda x: x * 10)


def numbers(dataset):
    return sorted(int(x) // 10 for batch in dataset for x in batch.numpy())


class DataService(OpTest):
    @contextlib.contextmanager
    def service(self, dispatchers, side):
        """A service of all ranks, and its file's contents; ended by rank 0 after the block, as the program that trains
        does it."""
        directory = tempfile.mkdtemp() if self.rank == 0 else None
        file = os.path.join(objects.broadcast_object(directory), "service.json")
        failed = []

        def prepare():
            try:
                compute_worker.main(dispatchers, side, file, 30)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=prepare, daemon=True)
        thread.start()
        config = TfDataServiceConfig.read(file, wait_for_file_creation=True)
        try:
            yield config
            collectives.barrier()
        finally:
            if self.rank == 0:
                self.assertEqual(stat.S_IMODE(os.stat(file).st_mode), 0o600)
                config.compute_client().shutdown()
            thread.join(60)
            self.assertFalse(thread.is_alive(), "the worker has not ended")
            self.assertEqual(failed, [])
        if self.rank == 0:
            os.remove(file)
            os.rmdir(directory)

    def all_numbers(self, own):
        return sorted(sum(objects.allgather_object(own), []))

    def test_one_dispatcher_and_one_run_for_all(self):
        with self.service(1, "compute") as config:
            self.assertEqual(config.workers_per_dispatcher, self.size)
            own = numbers(elements().send_to_data_service(config, self.rank, self.size, reuse_dataset=True))
            self.assertEqual(self.all_numbers(own), list(range(ELEMENTS)))

    def test_ranks_take_turns(self):
        with self.service(1, "compute") as config:
            dataset = send_to_data_service(
                elements().repeat(), config, self.rank, self.size, reuse_dataset=True, round_robin=True
            )
            self.assertEqual(len(list(dataset.take(5))), 5)
            collectives.barrier()

    def test_a_dispatcher_for_each_rank(self):
        for side in ("compute", "training"):
            with self.service(self.size, side) as config, tf_data_service(config, self.rank) as address:
                dataset = elements().apply(tf.data.experimental.service.distribute("distributed_epoch", address))
                self.assertEqual(numbers(dataset), list(range(ELEMENTS)))
                if side == "training":
                    with self.assertRaisesRegex(RuntimeError, "tf_data_service"):
                        elements().send_to_data_service(config, self.rank)

    def test_the_version(self):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), self.assertRaises(SystemExit) as ended:
            compute_worker._parse(["--version"])
        self.assertEqual(ended.exception.code, 0)
        self.assertEqual(
            printed.getvalue(), f"farandole.tensorflow.data.compute_worker (Farandole) {farandole.__version__}\n"
        )

    def test_invalid_arguments(self):
        with self.assertRaisesRegex(ValueError, "must be a multiple"):
            compute_worker.main(self.size + 1, "compute", "unused")
        with self.assertRaisesRegex(ValueError, "one of compute, training, not 'both'"):
            with tf_data_service(TfDataServiceConfig(1, 1, "both", {}, b"k"), self.rank):
                pass
        self.goes_on()


class RegistryTest(OpTest):
    def setUp(self):
        super().setUp()
        self.key = _registry.make_secret_key()
        self.service = _registry.ComputeService(2, 1, self.key)
        self.addCleanup(self.service.shutdown)
        self.client = _registry.ComputeClient(self.service.addresses(), self.key)

    def test_dispatchers_and_workers(self):
        self.client.register_dispatcher(1, "grpc://a:1")
        self.client.register_dispatcher(1, "grpc://a:1")
        self.assertEqual(self.client.wait_for_dispatcher_registration(1, 10), "grpc://a:1")
        with self.assertRaisesRegex(ValueError, "dispatcher 1 is grpc://a:1 already"):
            self.client.register_dispatcher(1, "grpc://b:1")
        for wrong in (-1, 2):
            with self.assertRaisesRegex(IndexError, f"there is no dispatcher {wrong}"):
                self.client.register_worker_for_dispatcher(wrong, 0)
        with self.assertRaisesRegex(TimeoutError, "Timed out .* waiting for dispatcher 0"):
            self.client.wait_for_dispatcher_registration(0, 0)
        self.client.register_worker_for_dispatcher(1, 5)
        self.client.wait_for_dispatcher_worker_registration(1, 10)
        with self.assertRaisesRegex(TimeoutError, "1 workers of dispatcher 0"):
            self.client.wait_for_dispatcher_worker_registration(0, 0)

    def test_without_the_key(self):
        stranger = _registry.ComputeClient(self.service.addresses(), b"another")
        with self.assertRaisesRegex(ConnectionError, "no data service answers"):
            stranger.register_dispatcher(0, "grpc://evil:1")
        self.client.register_dispatcher(0, "grpc://a:1")

    def test_the_end(self):
        self.client.shutdown()
        self.service.shutdown()
        with self.assertRaisesRegex(ConnectionError, "is it running"):
            self.client.register_dispatcher(0, "grpc://a:1")
        with self.assertRaisesRegex(ValueError, "at least 1"):
            _registry.ComputeService(0, 1, self.key)

    def test_the_address_for_other_hosts(self):
        own = dict(_registry._interface_addresses())
        self.assertEqual(own["lo"], "127.0.0.1")
        two = [("lo", "127.0.0.1"), ("eth0", "198.18.0.1"), ("eth1", "198.19.0.1")]
        with mock.patch.object(_registry, "_interface_addresses", lambda: two):
            for choice, address in (("eth1", "198.19.0.1"), ("198.19.0.0/16", "198.19.0.1"), ("lo", "127.0.0.1")):
                with mock.patch.dict(os.environ, FARANDOLE_NETWORK_INTERFACE=choice):
                    self.assertEqual(_registry.own_address(), address)
            with mock.patch.object(_registry, "_address_of_route", lambda: None):  # of a network that none leaves
                self.assertEqual(_registry.own_address(), "198.18.0.1")
                del two[1:]
                self.assertEqual(_registry.own_address(), "127.0.0.1")

    def test_configurations_as_json(self):
        config = TfDataServiceConfig(2, 3, "compute", {"lo": [("127.0.0.1", 1)]}, b"\0key", 7)
        self.assertEqual(TfDataServiceConfig.from_dict(config.to_dict()), config)
        self.assertEqual(dataclasses.replace(config, timeout=60), TfDataServiceConfig(*dataclasses.astuple(config)[:5]))


if __name__ == "__main__":
    main()
