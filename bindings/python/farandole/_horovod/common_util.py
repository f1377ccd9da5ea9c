# SPDX-License-Identifier: Apache-2.0
"""Horovod's module `horovod.common.util`."""

import contextlib
import functools
import importlib.util
import os
import sysconfig
import warnings
from typing import Any, Callable, Iterator, List, Optional, Sequence

from .. import _built

EXTENSIONS = ["tensorflow", "torch", "mxnet"]


def _cache(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: caches results by arguments. Exceptions are not cached."""
    results: dict = {}

    @functools.wraps(f)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        key = args, frozenset(kwargs.items())
        if key not in results:
            results[key] = f(*args, **kwargs)
        return results[key]

    return wrapper


def get_ext_suffix() -> str:
    """File name suffix of Python's extension modules."""
    return sysconfig.get_config_var("EXT_SUFFIX") or ".so"


def get_extension_full_path(pkg_path: str, *args: str) -> str:
    """Path of an extension module. args: folders and a name, relative to the folder of the file `pkg_path`."""
    if not args:
        raise AssertionError("give the name of an extension module")
    *folders, name = args
    return os.path.join(os.path.dirname(pkg_path), *folders, name + get_ext_suffix())


def _is_there(ext_base_name: str) -> bool:
    ours = f"{__package__.partition('.')[0]}.{ext_base_name}"
    return all(importlib.util.find_spec(name) is not None for name in (ours, ext_base_name))


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """True if a framework ("tensorflow", "torch", "mxnet") and
    Farandole's part for the framework are installed. Imports neither."""
    is_there = ext_base_name in EXTENSIONS and _is_there(ext_base_name)
    if verbose:
        print(f"Farandole for {ext_base_name}: {'there' if is_there else 'not there'}")
    return is_there


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Raises ImportError if the framework at the end of `ext_name` ("horovod.tensorflow"), or Farandole's part for the
    framework, is not installed. The other arguments locate Horovod's library, and are ignored."""
    del ext_env_var, pkg_path, args
    framework = ext_name.rpartition(".")[2]
    if not extension_available(framework):
        raise ImportError(f"{ext_name} is not there: it needs {framework}, and a Farandole that supports it")


def gpu_available(ext_base_name: str = "tensorflow", verbose: bool = False) -> bool:
    """True if a framework sees a GPU. Horovod queries the framework in a child process. This function queries it in
    this process, because TensorFlow allocates nothing for the query."""
    found = False
    if ext_base_name == "tensorflow" and extension_available(ext_base_name):
        import tensorflow as tf

        found = bool(tf.config.list_physical_devices("GPU"))
    if verbose:
        print(f"{ext_base_name} {'sees a GPU' if found else 'sees no GPU'}")
    return found


def mpi_built(verbose: bool = False) -> bool:
    """True if a plug-in for MPI is installed."""
    return _reported("MPI", _built.mpi_built(), verbose)


def gloo_built(verbose: bool = False) -> bool:
    """False."""
    return _reported("Gloo", _built.gloo_built(), verbose)


def nccl_built(verbose: bool = False) -> int:
    """Version of the NCCL that Farandole uses; 0 if there is none."""
    return _reported("NCCL", _built.nccl_built(), verbose)


def ddl_built(verbose: bool = False) -> bool:
    """False."""
    return _reported("DDL", _built.ddl_built(), verbose)


def ccl_built(verbose: bool = False) -> bool:
    """False."""
    return _reported("oneCCL", _built.ccl_built(), verbose)


def _reported(what: str, answer: Any, verbose: bool) -> Any:
    if verbose:
        print(f"Farandole was built {'with' if answer else 'without'} {what}")
    return answer


@contextlib.contextmanager
def env(**kwargs: Optional[str]) -> Iterator[None]:
    """Sets environment variables within a `with` block; variables with the value None are not changed."""
    changed = {name: value for name, value in kwargs.items() if value is not None}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def get_average_backwards_compatibility_fun(reduce_ops: Any) -> Callable[[Any, Any], Any]:
    """Returns a function (op, average) → operation: Average or Sum of `reduce_ops` if op is None. The function raises
    ValueError if both are given."""

    def chosen(op: Any, average: Any) -> Any:
        if op is not None and average is not None:
            raise ValueError("The op parameter supersedes average: give op or average, not both")
        if op is not None:
            return op
        if average is not None:
            warnings.warn("average has been replaced by op: op=Average, op=Sum", DeprecationWarning, stacklevel=2)
        return reduce_ops.Average if average or average is None else reduce_ops.Sum

    return chosen


def num_rank_is_power_2(num_rank: int) -> bool:
    """True if a number of ranks is a power of two."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(l: Sequence[Any], n: int) -> List[Sequence[Any]]:  # noqa: E741
    """Splits a list into `n` consecutive parts. Lengths differ by at most one; the longer parts come first."""
    length, longer = divmod(len(l), n)
    ends = [part * length + min(part, longer) for part in range(n + 1)]
    return [l[begin:end] for begin, end in zip(ends, ends[1:])]


def check_installed_version(name: str, version: str, exception: Any = None) -> None:
    """No-op: the ops are compiled for the installed TensorFlow, at the first import if necessary."""
    del name, version, exception


def is_iterable(x: Any) -> bool:
    """True if the value can be iterated over."""
    try:
        iter(x)
    except TypeError:
        return False
    return True


@_cache
def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """True if a version is `target` ("major.minor.patch") or later. Raises ValueError for other arguments."""
    if not isinstance(ver, str) or not isinstance(target, str):
        raise ValueError(f"versions are given as text, not as {type(ver).__name__} and {type(target).__name__}")
    if target.count(".") != 2:
        raise ValueError(f"target must be major.minor.patch, as 2.12.0, not {target!r}")
    from packaging import version  # comes with TensorFlow

    return version.parse(ver) >= version.parse(target)
