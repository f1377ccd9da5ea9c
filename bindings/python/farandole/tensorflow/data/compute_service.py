# SPDX-License-Identifier: Apache-2.0
"""A job of processes that prepare data, with tf.data's service, for the ranks of another job that trains.

`python -m farandole.tensorflow.data.compute_worker FILE` under mpirun starts the former and writes FILE, which tells
the latter where it is. Each rank of the first job runs a worker. Dispatchers run there, or on the ranks that train:

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
_SECONDS_BETWEEN_LOOKS = 0.1


@dataclasses.dataclass(frozen=True)
class TfDataServiceConfig:
    """Where a data service is, and how it is divided.

    dispatchers: 1 for all ranks that train, or one for each of them.
    workers_per_dispatcher: each a rank of the job that prepares data.
    dispatcher_side: "compute" or "training", the job that runs the dispatchers.
    addresses: of the process that knows who is there; by interface, pairs of address and port.
    key: whoever has it can talk to that process.
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
        """Of what JSON has; the key as hexadecimal digits."""
        return {**self.__dict__, "key": binascii.hexlify(self.key).decode()}

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> "TfDataServiceConfig":
        addresses = {
            interface: [(host, port) for host, port in known] for interface, known in config["addresses"].items()
        }
        return TfDataServiceConfig(**{**config, "addresses": addresses, "key": binascii.unhexlify(config["key"])})

    def write(self, filename: str) -> None:
        """The file can be read by this user only, because it has the key, and appears with all that is in it."""
        new = f"{filename}.{os.getpid()}.new"
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(self.to_dict(), file)
        os.replace(new, filename)

    @staticmethod
    def read(filename: str, wait_for_file_creation: bool = False) -> "TfDataServiceConfig":
        """Waits for the file if it is told to, without end. Raises FileNotFoundError."""
        while wait_for_file_creation and not os.path.exists(filename):
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        with open(filename, encoding="utf-8") as file:
            return TfDataServiceConfig.from_dict(json.load(file))


def _check_side(config: TfDataServiceConfig) -> None:
    if config.dispatcher_side not in _SIDES:
        raise ValueError(f"the dispatchers' side must be one of {', '.join(_SIDES)}, not {config.dispatcher_side!r}")


def _meet(where: str) -> None:
    """Waits for all ranks, beside whatever other threads do."""
    collectives.allreduce([0], op=collectives.Sum, name=f"farandole.data_service.{where}")


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
        # It names itself localhost, which is another one for processes of other hosts.
        compute.register_dispatcher(index, f"{protocol}://{own_address()}:{address.rsplit(':', 1)[1]}")
        yield
    finally:
        before_end()
        server._server.stop()  # TensorFlow has no public way


@contextlib.contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """In the job that trains: the address of the dispatcher for this rank, once all its workers are there. Runs the
    dispatcher until the end of the block if that is this job's business.

    Raises TimeoutError, ConnectionError, ValueError.
    """
    _check_side(compute_config)
    compute = compute_config.compute_client()
    index = rank if compute_config.dispatchers > 1 else 0
    runs_here = compute_config.dispatcher_side == "training" and index == rank

    def end() -> None:
        with contextlib.suppress(ConnectionError, IndexError):  # the service may have been ended in the block
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
    """The dataset, prepared up to here by the data service; also a method of `tf.data.Dataset`.

    rank, size: of this process, and of the job that trains.
    processing_mode: of TensorFlow's data service.
    reuse_dataset: all ranks take from one run through the data; else each has a run of its own.
    round_robin: with `reuse_dataset`, ranks take their turns; the dataset must have no end.

    Raises RuntimeError where dispatchers run on the side of training: their lives end with `tf_data_service`.
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
    """In the job that prepares data: a worker on this rank, and a dispatcher where this job has them and this rank is
    the first of its workers. Blocks until the service is shut down. Collective: all ranks of the job call it.

    timeout: seconds that a worker tries to reach its dispatcher; TensorFlow's default without it.

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
                worker_address=f"{own_address()}:%port%",  # TensorFlow puts in the port that it has found
                heartbeat_interval_ms=1000,
                dispatcher_timeout_ms=timeout * 1000 if timeout else None,
            )
        )
        is_over = False
        try:
            compute.register_worker_for_dispatcher(index, rank)
            is_over = compute.wait_for_end_of_dispatcher(index)
            # Stopping holds Python's lock, which the thread that tells the others may need.
            _meet("told")
        finally:
            worker._server.stop()
        if not is_over:
            with contextlib.suppress(ConnectionError):
                compute.tell_stopped(index, rank)
                compute.wait_for_shutdown()
        # A worker stops while its dispatcher is there.
        _meet("stopped")
