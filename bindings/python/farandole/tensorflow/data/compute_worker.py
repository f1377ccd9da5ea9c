# SPDX-License-Identifier: Apache-2.0
"""Prepares data for the ranks of a training job:

mpirun -np 4 python -m farandole.tensorflow.data.compute_worker FILE [--dispatchers 2] [--dispatcher-side training]

Writes FILE, from which the training job reads a TfDataServiceConfig, and runs until that job ends the service:
TfDataServiceConfig.read(FILE).compute_client().shutdown().
"""

import argparse
from typing import List, Optional

from ... import _built, _lifecycle, objects
from ._registry import ComputeService, make_secret_key
from .compute_service import TfDataServiceConfig, compute_worker_fn


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int = 60) -> None:
    """Runs the data job: writes `configfile` and blocks until the service is shut down. Collective. Raises ValueError
    if the number of ranks is not a multiple of `dispatchers`."""
    _lifecycle.init()
    size = _lifecycle.size()
    if dispatchers < 1 or size % dispatchers:
        raise ValueError(f"the number of ranks, {size}, must be a multiple of the number of dispatchers, {dispatchers}")
    service = None
    config = None
    try:
        if _lifecycle.rank() == 0:
            service = ComputeService(dispatchers, size // dispatchers, make_secret_key())
            config = TfDataServiceConfig(
                dispatchers=dispatchers,
                workers_per_dispatcher=size // dispatchers,
                dispatcher_side=dispatcher_side,
                addresses=service.addresses(),
                key=service.key,
                timeout=timeout,
            )
            config.write(configfile)
        # Broadcasts the configuration, because the file may be an older one, or missing on other hosts.
        received = objects.broadcast_object(config and config.to_dict(), name="farandole.data_service")
        compute_worker_fn(TfDataServiceConfig.from_dict(received), timeout)
    finally:
        if service is not None:
            service.shutdown()


def _parse(arguments: Optional[List[str]] = None) -> argparse.Namespace:
    name = "farandole.tensorflow.data.compute_worker"
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description="Run it on all ranks of a job of its own.")
    parser.add_argument("--version", action="version", version=_built.version_line(name))
    parser.add_argument("configfile", help="file to write, which tells the job that trains where the service is")
    parser.add_argument("--dispatchers", type=int, default=1, help="1, or one for each rank that trains")
    parser.add_argument(
        "--dispatcher-side",
        choices=("compute", "training"),
        default="compute",
        help="the job that runs the dispatchers",
    )
    parser.add_argument("--timeout", type=int, default=60, help="seconds to wait for dispatchers and workers")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(**vars(_parse()))
