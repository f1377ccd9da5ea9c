# SPDX-License-Identifier: Apache-2.0
"""Runs a tf.data service in a separate MPI job, the data job, for the ranks of a training job.

`python -m farandole.tensorflow.data.compute_worker FILE` under mpirun starts the data job and writes FILE, from which
the training job reads the addresses. Each rank of the data job runs a worker. The dispatchers run in the data job
(`dispatcher_side="compute"`) or on the training ranks (`"training"`). In the training job:

with tf_data_service(TfDataServiceConfig.read(FILE), hvd.rank()) as service:
    dataset = dataset.apply(tf.data.experimental.service.distribute("distributed_epoch", service))
"""

import binascii
import contextlib
import dataclasses
import json
import os
import time
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence, Tuple

import tensorflow as tf

from ... import _lifecycle
from ... import numpy as collectives
from ._registry import ComputeClient, own_address

_SIDES = ("compute", "training")
_SECONDS_BETWEEN_POLLS = 0.1


@dataclasses.dataclass(frozen=True)
class TfDataServiceConfig:
    """Addresses and layout of a data service.

    dispatchers: 1 for all training ranks, or one per training rank.
    workers_per_dispatcher: ranks of the data job per dispatcher.
    dispatcher_side: "compute" (the data job) or "training": the job that runs the dispatchers.
    addresses: (address, port) pairs of the process that runs the ComputeService, by interface.
    key: secret that authenticates clients of that process.
    timeout: seconds to wait for dispatchers and workers.
    """

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: Mapping[str, Sequence[Tuple[str, int]]]
    key: bytes
    timeout: int = 60

    def compute_client(self, verbose: int = 1) -> ComputeClient:
        return ComputeClient(self.addresses, self.key, verbose=verbose)

    def to_dict(self) -> Mapping[str, Any]:
        """A dictionary that JSON can hold; the key as hexadecimal digits."""
        return {**self.__dict__, "key": binascii.hexlify(self.key).decode()}

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> "TfDataServiceConfig":
        addresses = {
            interface: [(host, port) for host, port in known] for interface, known in config["addresses"].items()
        }
        return TfDataServiceConfig(**{**config, "addresses": addresses, "key": binascii.unhexlify(config["key"])})

    def write(self, filename: str) -> None:
        """Writes the file atomically, readable for this user only, because the file holds the key."""
        new = f"{filename}.{os.getpid()}.new"
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(self.to_dict(), file)
        os.replace(new, filename)

    @staticmethod
    def read(filename: str, wait_for_file_creation: bool = False) -> "TfDataServiceConfig":
        """Reads the file. If the file is missing: blocks until it exists if `wait_for_file_creation`, else raises
        FileNotFoundError."""
        while wait_for_file_creation and not os.path.exists(filename):
            time.sleep(_SECONDS_BETWEEN_POLLS)
        with open(filename, encoding="utf-8") as file:
            return TfDataServiceConfig.from_dict(json.load(file))


def _check_side(config: TfDataServiceConfig) -> None:
    if config.dispatcher_side not in _SIDES:
        raise ValueError(f"the dispatchers' side must be one of {', '.join(_SIDES)}, not {config.dispatcher_side!r}")


def _barrier(name: str) -> None:
    """Blocks until all ranks have called this function with `name`. A named allreduce instead of `barrier`, so that
    collectives of other threads may run meanwhile."""
    collectives.allreduce([0], op=collectives.Sum, name=f"farandole.data_service.{name}")


@contextlib.contextmanager
def _dispatcher(
    compute: ComputeClient, index: int, runs_here: bool, before_end: Callable[[], Any]
) -> Iterator[None]:
    if not runs_here:
        yield
        return
    server = tf.data.experimental.service.DispatchServer()
    try:
        protocol, address = server.target.split("://")
        # TensorFlow names the server localhost, which other hosts cannot reach.
        compute.register_dispatcher(index, f"{protocol}://{own_address()}:{address.rsplit(':', 1)[1]}")
        yield
    finally:
        before_end()
        server._server.stop()  # there is no public method


@contextlib.contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """In the training job: yields the address of this rank's dispatcher, once all workers of that dispatcher are
    registered. If dispatchers run on the training ranks, also runs this rank's dispatcher until the end of the block
    (on rank 0 only if there is a single dispatcher).

    Raises TimeoutError, ConnectionError, ValueError.
    """
    _check_side(compute_config)
    compute = compute_config.compute_client()
    index = rank if compute_config.dispatchers > 1 else 0
    runs_here = compute_config.dispatcher_side == "training" and index == rank

    def end() -> None:
        with contextlib.suppress(ConnectionError, IndexError):  # the program may have ended the service in the block
            compute.end_dispatcher(index, compute_config.timeout)

    with _dispatcher(compute, index, runs_here, end):
        address = compute.wait_for_dispatcher_registration(index, compute_config.timeout)
        compute.wait_for_dispatcher_worker_registration(index, compute_config.timeout)
        yield address


def send_to_data_service(
    dataset: tf.data.Dataset,
    compute_config: TfDataServiceConfig,
    rank: int,
    size: Optional[int] = None,
    processing_mode: str = "distributed_epoch",
    reuse_dataset: bool = False,
    round_robin: bool = False,
) -> tf.data.Dataset:
    """Returns a dataset that reads its elements from the data service. The service runs the transformations applied to
    `dataset` so far. Also a method of `tf.data.Dataset`.

    rank, size: this process's rank, and the size of the training job.
    processing_mode: passed to TensorFlow's data service.
    reuse_dataset: all ranks share one pass over the data. Otherwise each rank has a pass of its own.
    round_robin: with `reuse_dataset`, ranks take elements in turns; the dataset must be infinite.

    Raises RuntimeError if dispatchers run on the training ranks: they would stop when this function returns. Use
    `with tf_data_service(…)` there.
    """
    if compute_config.dispatcher_side == "training":
        raise RuntimeError(
            "send_to_data_service needs dispatchers on the side of compute; use `with tf_data_service(…)` instead"
        )
    in_turn = reuse_dataset and round_robin
    with tf_data_service(compute_config, rank) as address:
        return dataset.apply(
            tf.data.experimental.service.distribute(
                processing_mode=processing_mode,
                service=address,
                job_name="job" if reuse_dataset else None,
                consumer_index=rank if in_turn else None,
                num_consumers=size if in_turn else None,
            )
        )


tf.data.Dataset.send_to_data_service = send_to_data_service


def compute_worker_fn(compute_config: TfDataServiceConfig, timeout: Optional[int] = None) -> None:
    """In the data job: runs a worker on this rank. If the data job runs the dispatchers, the rank of each dispatcher's
    first worker also runs the dispatcher. Blocks until the service is shut down. Collective: all ranks of the job.

    timeout: seconds in which a worker tries to reach its dispatcher; None: TensorFlow's default.

    Raises TimeoutError, ConnectionError, ValueError.
    """
    _check_side(compute_config)
    _lifecycle.init()
    rank = _lifecycle.rank()
    index, place = divmod(rank, compute_config.workers_per_dispatcher)
    compute = compute_config.compute_client()
    runs_here = compute_config.dispatcher_side == "compute" and place == 0
    with _dispatcher(compute, index, runs_here, before_end=lambda: None):
        address = compute.wait_for_dispatcher_registration(index, compute_config.timeout)
        worker = tf.data.experimental.service.WorkerServer(
            tf.data.experimental.service.WorkerConfig(
                dispatcher_address=address.split("://")[1],
                worker_address=f"{own_address()}:%port%",  # TensorFlow inserts the port
                heartbeat_interval_ms=1000,
                dispatcher_timeout_ms=timeout * 1000 if timeout else None,
            )
        )
        is_over = False
        try:
            compute.register_worker_for_dispatcher(index, rank)
            is_over = compute.wait_for_end_of_dispatcher(index)
            # Wait for all ranks, because `stop()` holds the GIL. On the rank that runs the ComputeService, its threads
            # need the GIL to tell the other workers that the dispatcher ends.
            _barrier("told")
        finally:
            worker._server.stop()
        if not is_over:
            with contextlib.suppress(ConnectionError):
                compute.tell_stopped(index, rank)
                compute.wait_for_shutdown()
        # Workers must stop before their dispatcher, which ends with this function.
        _barrier("stopped")
