# SPDX-License-Identifier: Apache-2.0
"""Translates HOROVOD_* variables to Farandole's settings. Variables without an effect are named in a warning."""

import os
from typing import Callable, Dict, List, Mapping, Optional, Tuple

_LONGEST = "604800"  # a week, the maximum of FARANDOLE_WARN_AFTER


def _is_on(value: str) -> bool:
    return value.strip().lower() not in ("", "0", "false", "no", "off")


def _timeline(value: str) -> str:
    """The name of the timeline's file. Empty for "DYNAMIC", which allows start_timeline() in Horovod and has no effect
    here: start_timeline() is always allowed."""
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
    """The number, at least 1; empty if `value` is no whole number. 0, with which Horovod packs no tensors, becomes 1:
    two tensors never fit into 1 byte."""
    return str(max(int(value), 1)) if value.isdigit() else ""


def _seconds(value: str) -> str:
    return value if value.isdigit() else ""


# Farandole's setting, and a function that translates the value. An empty result, as for an invalid value, sets nothing.
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
# Variables that ask for the normal behaviour, or in which a launcher describes the process.
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
    """(Settings for the HOROVOD_* variables of `environment`, names of variables that have no effect). Settings that
    are in the environment already are not overridden."""
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
    """The setting of Farandole to which a HOROVOD_* variable is translated; None if the variable has no effect."""
    return _MEANINGS[variable][0] if variable in _MEANINGS else None


def apply() -> List[str]:
    """Sets the translated variables in this process. Returns the names of HOROVOD_* variables that have no effect."""
    settings, ignored = translate(os.environ)
    os.environ.update(settings)
    return ignored


def launched_size() -> int:
    """Number of processes that horovodrun has started; 1 if horovodrun did not start this process."""
    text = os.environ.get("HOROVOD_SIZE", "")
    return int(text) if text.isdigit() else 1
