# SPDX-License-Identifier: Apache-2.0
"""Exceptions of the backend: each is Farandole's class of the same name, and torch's DistBackendError."""

from typing import Dict

from torch.distributed import DistBackendError

from .. import errors


class InvalidArgument(errors.InvalidArgument, DistBackendError):
    __doc__ = errors.InvalidArgument.__doc__


class Unsupported(errors.Unsupported, DistBackendError):
    __doc__ = errors.Unsupported.__doc__


class Mismatch(errors.Mismatch, DistBackendError):
    __doc__ = errors.Mismatch.__doc__


class Timeout(errors.Timeout, DistBackendError):
    """A call took longer than the process group's timeout, and the job has failed; or a wait took longer than its own
    timeout, and the call goes on."""


class PeerLost(errors.PeerLost, DistBackendError):
    __doc__ = errors.PeerLost.__doc__


class TransportError(errors.TransportError, DistBackendError):
    __doc__ = errors.TransportError.__doc__


class DeviceError(errors.DeviceError, DistBackendError):
    __doc__ = errors.DeviceError.__doc__


class DataError(errors.DataError, DistBackendError):
    __doc__ = errors.DataError.__doc__


class InternalError(errors.InternalError, DistBackendError):
    __doc__ = errors.InternalError.__doc__


# By the core's names of kinds. Communicators have no names of tensors, and no DuplicateName.
CLASSES: Dict[str, type] = {
    each.__name__: each
    for each in (InvalidArgument, Unsupported, Mismatch, Timeout, PeerLost, TransportError, DeviceError, DataError)
}
CLASSES["Internal"] = InternalError
for _class in CLASSES.values():
    _class.__module__ = __package__  # the name that tracebacks show is the one to import
