# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as exceptions.

There is one class for each kind of error of the core, with the same name. `HorovodInternalError` is the base of those
after which no collective of the job can succeed any more: a lost rank, a deadline, a transport or a device that failed.
After the other kinds the job can go on.
"""


class Error(RuntimeError):
    """Base of everything that Farandole raises by itself."""

    # By this AutoGraph knows that it can make one from a text: what a `tf.function` raises while it is traced keeps its class.
    __init__ = Exception.__init__


class HorovodInternalError(Error):
    """The job has failed: every later collective fails too. Programs written for Horovod catch it by this name."""


class InvalidArgument(Error, ValueError):
    """What was asked for can not work, whatever the other ranks do. Nothing was sent."""


class Unsupported(Error, NotImplementedError):
    """What was asked for is not part of this version, or not possible here; the text says what to use instead."""


class Mismatch(Error):
    """The ranks did not ask for the same. Raised on all of them; no data was touched."""


class DuplicateName(Error):
    """A tensor of this name is pending already in this process set."""


class Timeout(HorovodInternalError):
    """A collective took longer than FARANDOLE_TIMEOUT."""


class PeerLost(HorovodInternalError):
    """A rank ended, left, or gave up while others needed it; the text names it."""


class TransportError(HorovodInternalError):
    """Messages or shared memory failed."""


class DeviceError(HorovodInternalError):
    """A device or its driver failed."""


class DataError(Error):
    """Data that was read, from a file or from another rank, is not what it should be."""


class InternalError(Error):
    """Farandole contradicts itself: an error of its own."""


class HostsUpdatedInterrupt(RuntimeError):
    """Horovod raises this when hosts come or go. Farandole's jobs have a fixed set of ranks, so it never does; a
    program may raise it inside a function decorated with `elastic.run` to start that function again.

    `skip_sync`: whether state is left as it is instead of being sent from rank 0 again.
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
    """The class for a kind of the core, by its name ("Mismatch", …); `InternalError` for names of newer versions."""
    return _CLASSES.get(kind_name, InternalError)
