# SPDX-License-Identifier: Apache-2.0
"""Exceptions that only Horovod raises, for programs that name them."""


class HorovodVersionMismatchError(ImportError):
    """Horovod raises this error if a framework's version differs from the version at build time. Farandole never raises
    it, because the ops are compiled for the installed TensorFlow."""

    def __init__(self, name: str, version: str, installed_version: str):
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """Text of a HorovodVersionMismatchError."""
    return f"built for {name} {installed_version}, but {name} is {version}: build again for this version"
