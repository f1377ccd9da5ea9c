# SPDX-License-Identifier: Apache-2.0
"""Farandole as a backend of torch.distributed.

    import farandole.torch
    import torch.distributed as dist

    dist.init_process_group("farandole")

Since torch 2.14 the first line is not needed, because torch finds the backend by its name. docs/torch.md says more.
"""

import atexit
import os
import sys
from typing import Any

import torch.distributed as dist

from .. import _engine, _files, _uncaught
from ..errors import HorovodInternalError
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
_process = 0  # id of the process that has made a group


def register() -> None:
    """Makes the backend known to torch.distributed. Idempotent; this module calls it. Also the entry point by which
    torch finds the backend."""
    if _NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(_NAME, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(options: Any, backend_options: Any) -> Any:
    """Makes the backend of a process group. options: torch's DistributedBackendOptions."""
    global _process
    if backend_options is not None and not isinstance(backend_options, dist.ProcessGroup.Options):
        raise InvalidArgument(f"the backend farandole takes no pg_options of type {type(backend_options).__name__}")
    if _process != os.getpid():
        _process = os.getpid()
        atexit.register(_at_exit)
        if not torch.cuda.is_available():  # on devices the variable concerns NCCL
            os.environ.setdefault(_NO_WINDOWS, "0")
    size = options.group_size
    return _backend.create(
        options.store,
        options.group_rank,
        size,
        list(options.global_ranks_in_group) or list(range(size)),
        dist.get_world_size() if dist.is_initialized() else size,
        options.timeout.total_seconds(),
        options.group_id,
    )


def _at_exit() -> None:
    """Leaves the job, once all ranks do; after an uncaught exception ends the job instead. A forked child is in no
    job."""
    if _process != os.getpid():
        return
    uncaught = getattr(sys, "last_value", None)
    if uncaught is not None:
        if not isinstance(uncaught, HorovodInternalError):  # otherwise the job has failed already
            _backend.abort(_uncaught.described(type(uncaught), uncaught, uncaught.__traceback__))
        return
    if dist.is_initialized() and _NAME in str(dist.get_backend_config()):
        dist.destroy_process_group()
    _backend.leave()


register()
