# SPDX-License-Identifier: Apache-2.0
"""Converts horovodrun's configuration file to arguments of the command line."""

import difflib
from typing import Any, Dict, List

from .. import errors

_INSTALL = "pip install 'farandole[run]'"
# The option for each entry of each section. A pair holds the options for true and false.
_SECTIONS: Dict[str, Dict[str, Any]] = {
    "params": {
        name: f"--{name.replace('_', '-')}"
        for name in (
            "fusion_threshold_mb", "cycle_time_ms", "cache_capacity", "hierarchical_allreduce", "hierarchical_allgather",
        )
    },
    "autotune": {
        "enabled": "--autotune",
        **{
            name: f"--autotune-{name.replace('_', '-')}"
            for name in (
                "log_file", "warmup_samples", "steps_per_sample", "bayes_opt_max_samples", "gaussian_process_noise",
            )
        },
    },
    "timeline": {"filename": "--timeline-filename", "mark_cycles": "--timeline-mark-cycles"},
    "stall_check": {
        "enabled": "--stall-check",
        "warning_time_seconds": "--stall-check-warning-time-seconds",
        "shutdown_time_seconds": "--stall-check-shutdown-time-seconds",
    },
    "library_options": {
        name: f"--{name.replace('_', '-')}"
        for name in ("mpi_threads_disable", "num_nccl_streams", "ccl_bgt_affinity", "gloo_timeout_seconds")
    },
    "logging": {
        "level": "--log-level",
        "with_timestamp": ("--log-with-timestamp", "--log-without-timestamp"),
        "hide_timestamp": ("--log-without-timestamp", "--log-with-timestamp"),
    },
}  # fmt: skip


def read_arguments(path: str) -> List[str]:
    """The options in the file. Raises Unsupported without PyYAML, InvalidArgument for unknown content, OSError."""
    try:
        import yaml
    except ImportError:
        raise errors.Unsupported(f"--config-file needs PyYAML: {_INSTALL}") from None
    with open(path, encoding="utf-8") as file:
        try:
            content = yaml.safe_load(file)
        except yaml.YAMLError as error:
            raise errors.InvalidArgument(f"{path} is no YAML: {error}") from None
    return arguments_of(content or {}, path)


def arguments_of(content: Any, path: str) -> List[str]:
    """The arguments for the content of a file: sections of names and values. Raises InvalidArgument."""
    if not isinstance(content, dict):
        raise errors.InvalidArgument(f"{path} holds no sections such as params: or timeline:")
    arguments: List[str] = []
    for section, values in content.items():
        if section == "controller":
            arguments += [_controller(values, path)]
            continue
        options = _known(_SECTIONS, section, "section", path)
        if not isinstance(values, dict):
            raise errors.InvalidArgument(f"{path}: the section {section} holds names with values, not {values!r}")
        for name, value in values.items():
            if value is not None:
                arguments.append(_argument(_known(options, name, f"name in {section}", path), value))
    return arguments


def _controller(value: Any, path: str) -> str:
    if str(value).lower() not in ("mpi", "gloo"):
        raise errors.InvalidArgument(f"{path}: controller is mpi or gloo, not {value!r}")
    return f"--{str(value).lower()}"


def _argument(option: Any, value: Any) -> str:
    if isinstance(value, bool):
        yes, no = option if isinstance(option, tuple) else (option, option.replace("--", "--no-", 1))
        return yes if value else no
    return f"{option}={value}"


def _known(table: Dict[str, Any], name: Any, what: str, path: str) -> Any:
    if name in table:
        return table[name]
    near: List[str] = difflib.get_close_matches(str(name), [*table], 1, 0.5)
    hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(table)}"
    raise errors.InvalidArgument(f"{path}: there is no {what} {name!r}{hint}")
