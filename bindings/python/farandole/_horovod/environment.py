# SPDX-License-Identifier: Apache-2.0
"""HOROVOD_* variables: those that mean something here are passed on, the others are named once."""

import os
from typing import Callable, Dict, List, Mapping, Optional, Tuple

_LONGEST = "604800"  # a week: the most that FARANDOLE_WARN_AFTER takes


def _is_on(value: str) -> bool:
    return value.strip().lower() not in ("", "0", "false", "no", "off")


def _timeline(value: str) -> str:
    """A file; "DYNAMIC" asks for start_timeline(), which can be called anyway."""
    return "" if value.upper() == "DYNAMIC" else value


_LOG_LEVELS = {
    "trace": "debug",
    "debug": "debug",
    "info": "info",
    "warning": "warning",
    "error": "error",
    "fatal": "error",
}


def _positive(value: str) -> str:
    """A whole number of at least 1; Horovod takes 0 for "do not pack"."""
    return str(max(int(value), 1)) if value.isdigit() else ""


def _seconds(value: str) -> str:
    return value if value.isdigit() else ""


# Ours, and our text for theirs; an empty text, also for what is no value, passes nothing on.
_MEANINGS: Dict[str, Tuple[str, Callable[[str], str]]] = {
    "HOROVOD_FUSION_THRESHOLD": ("FARANDOLE_FUSION_BYTES", _positive),
    "HOROVOD_STALL_CHECK_TIME_SECONDS": (
        "FARANDOLE_WARN_AFTER",
        lambda value: _seconds(value) if value != "0" else _LONGEST,
    ),
    "HOROVOD_STALL_CHECK_DISABLE": ("FARANDOLE_WARN_AFTER", lambda value: _LONGEST if _is_on(value) else ""),
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": ("FARANDOLE_TIMEOUT", _seconds),
    "HOROVOD_TIMELINE": ("FARANDOLE_TIMELINE", _timeline),
    "HOROVOD_TIMELINE_MARK_CYCLES": ("FARANDOLE_TIMELINE_CYCLES", lambda value: "on" if _is_on(value) else "off"),
    "HOROVOD_LOG_LEVEL": ("FARANDOLE_LOG", lambda value: _LOG_LEVELS.get(value.lower(), "")),
}
# They ask for what is so anyway, or say where a launcher put the process.
_NEEDLESS = {
    "HOROVOD_DYNAMIC_PROCESS_SETS",
    "HOROVOD_RANK",
    "HOROVOD_SIZE",
    "HOROVOD_LOCAL_RANK",
    "HOROVOD_LOCAL_SIZE",
    "HOROVOD_CROSS_RANK",
    "HOROVOD_CROSS_SIZE",
    "HOROVOD_HOSTNAME",
}


def translate(environment: Mapping[str, str]) -> Tuple[Dict[str, str], List[str]]:
    """What to set for the HOROVOD_* variables of `environment`, and the names of those that have no effect. A
    variable of ours that is set already stays."""
    settings: Dict[str, str] = {}
    ignored: List[str] = []
    for name in sorted(environment):
        if not name.startswith("HOROVOD_") or name in _NEEDLESS or not environment[name]:
            continue
        if name not in _MEANINGS:
            ignored.append(name)
            continue
        ours, meaning = _MEANINGS[name]
        text = meaning(environment[name])
        if text and ours not in environment:
            settings.setdefault(ours, text)
    return settings, ignored


def setting_of(variable: str) -> Optional[str]:
    """The setting of Farandole that a HOROVOD_* variable is read as; None if it has no effect."""
    return _MEANINGS[variable][0] if variable in _MEANINGS else None


def apply() -> List[str]:
    """Sets the variables of this process. Returns the names of those that have no effect."""
    settings, ignored = translate(os.environ)
    os.environ.update(settings)
    return ignored


def launched_size() -> int:
    """Number of processes that horovodrun says it started; 1 if it did not start this one."""
    text = os.environ.get("HOROVOD_SIZE", "")
    return int(text) if text.isdigit() else 1
