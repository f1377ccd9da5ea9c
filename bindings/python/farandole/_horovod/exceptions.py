# SPDX-License-Identifier: Apache-2.0
"""Errors that only Horovod raises, for programs that name them."""


class HorovodVersionMismatchError(ImportError):
    """Horovod raises it if a framework has another version than at its build. Farandole's ops are compiled for the
    installed TensorFlow, so it never does."""

    def __init__(self, name: str, version: str, installed_version: str):
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """What HorovodVersionMismatchError says."""
    return f"built for {name} {installed_version}, but {name} is {version}: build again for this version"
