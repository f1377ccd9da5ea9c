# SPDX-License-Identifier: Apache-2.0
"""Farandole as a backend of torch.distributed.

    import farandole.torch
    import torch.distributed as dist

    dist.init_process_group("farandole")

Since torch 2.14 the first line is not needed, because torch finds the backend by its name. docs/torch.md says more.
"""

import os
from typing import Any

import torch.distributed as dist

from .. import _engine, _files
from . import _ending
from ._backend_library import TORCH

if not dist.is_available():
    raise ImportError("this build of torch has no torch.distributed, which Farandole is a backend of")

import torch  # noqa: E402

_doubt = TORCH.why_not_tested(torch.__version__)
if _doubt is not None and _files.is_first_rank():
    _engine.log("warning", _doubt)

from ._errors import (  # noqa: E402
    DataError,
    DeviceError,
    InternalError,
    InvalidArgument,
    Mismatch,
    PeerLost,
    TransportError,
    Timeout,
    Unsupported,
)
from ._library import backend as _backend  # noqa: E402
from ._monitored_barrier import monitored_barrier  # noqa: E402

__all__ = [
    "DataError",
    "DeviceError",
    "InternalError",
    "InvalidArgument",
    "Mismatch",
    "PeerLost",
    "Timeout",
    "TransportError",
    "Unsupported",
    "monitored_barrier",
    "register",
]

_NAME = "farandole"
# torch's variable; with "0" DistributedDataParallel lets the backend allocate its buckets, which then lie in windows.
_NO_WINDOWS = "DDP_DISABLE_COMM_MEM"


def register() -> None:
    """Makes the backend known to torch.distributed. Idempotent; this module calls it. Also the entry point by which
    torch finds the backend."""
    if _NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(_NAME, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(options: Any, backend_options: Any) -> Any:
    """Makes the backend of a process group. options: torch's DistributedBackendOptions."""
    timeout = _timeout(options, backend_options)
    _ending.watch(_backend, _destroy_groups)
    if not torch.cuda.is_available():  # on devices the variable concerns NCCL
        os.environ.setdefault(_NO_WINDOWS, "0")
    size = options.group_size
    return _backend.create(
        options.store,
        options.group_rank,
        size,
        list(options.global_ranks_in_group) or list(range(size)),
        dist.get_world_size() if dist.is_initialized() else size,
        timeout,
        options.group_id,
    )


def _timeout(options: Any, backend_options: Any) -> float:
    """The timeout of a process group in seconds. torch passes its default where the program has given none."""
    if backend_options is None:
        return options.timeout.total_seconds()
    base = torch._C._distributed_c10d.Backend.Options
    if type(backend_options) is not base or getattr(backend_options, "enable_reconfigure", False):
        raise InvalidArgument(
            f"pg_options of type {type(backend_options).__module__}.{type(backend_options).__qualname__}: the backend "
            'farandole takes torch._C._distributed_c10d.Backend.Options("farandole"), of which the timeout counts, or None'
        )
    is_default = options.timeout == dist.distributed_c10d.default_pg_timeout
    return (backend_options._timeout if is_default else options.timeout).total_seconds()


def _destroy_groups() -> None:
    if dist.is_initialized() and _NAME in str(dist.get_backend_config()):
        dist.destroy_process_group()


register()
