# SPDX-License-Identifier: Apache-2.0
"""Exceptions of the package.

Each kind of error of the core has a class of the same name. After an error whose class is derived from
`HorovodInternalError` (a lost rank, a deadline, a transport or a device that failed), no collective of the job can
succeed any more. After an InternalError the job may have failed, too. After any other error the job can go on.
"""


class Error(RuntimeError):
    """Base class of all errors that Farandole raises."""

    # AutoGraph recognises by this __init__ that it can re-create an exception from its text, and keeps the class of an
    # exception that a `tf.function` raises during tracing.
    __init__ = Exception.__init__


class HorovodInternalError(Error):
    """The job has failed, and every later collective fails, too. Programs written for Horovod catch this class."""


class InvalidArgument(Error, ValueError):
    """The call cannot work, whatever the other ranks do. No data was sent; peers that make the same collective
    correctly raise Mismatch."""


class Unsupported(Error, NotImplementedError):
    """The call is not supported in this version or in this situation. The text names an alternative."""


class Mismatch(Error):
    """The calls of the ranks differ. Raised on all ranks; no data was changed."""


class DuplicateName(Error):
    """A tensor of this name is already pending in the process set."""


class Timeout(HorovodInternalError):
    """A collective took longer than FARANDOLE_TIMEOUT."""


class PeerLost(HorovodInternalError):
    """A rank has ended, left the job, or aborted while other ranks needed it. The text names the rank."""


class TransportError(HorovodInternalError):
    """Messages or shared memory failed."""


class DeviceError(HorovodInternalError):
    """A device or its driver failed."""


class DataError(Error):
    """Data from a file or from another rank are malformed."""


class InternalError(Error):
    """An internal invariant does not hold: a bug in Farandole."""


class HostsUpdatedInterrupt(RuntimeError):
    """Horovod raises this exception when hosts come or go. In Farandole the ranks of a job are fixed, so only the
    program can raise it: inside a function decorated with `elastic.run`, it restarts that function.

    skip_sync: keeps the state instead of broadcasting rank 0's state again.
    """

    def __init__(self, skip_sync: bool = False):
        super().__init__("the set of hosts has changed")
        self.skip_sync = skip_sync


_CLASSES = {
    "InvalidArgument": InvalidArgument,
    "Unsupported": Unsupported,
    "Mismatch": Mismatch,
    "DuplicateName": DuplicateName,
    "Timeout": Timeout,
    "PeerLost": PeerLost,
    "TransportError": TransportError,
    "DeviceError": DeviceError,
    "DataError": DataError,
    "Internal": InternalError,
    "InternalError": InternalError,
}


def class_of(kind_name: str) -> type:
    """The class for a kind of error of the core, by name ("Mismatch", …). `InternalError` for a name that this version
    does not know."""
    return _CLASSES.get(kind_name, InternalError)
