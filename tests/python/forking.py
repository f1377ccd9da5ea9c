# SPDX-License-Identifier: Apache-2.0
"""Helpers for code that runs in a forked child of a rank, shared by several test files."""

import os
import select
import signal
import traceback

SECONDS = 30


def in_child(body) -> str:
    """Calls `body()` in a forked child. Returns "" if `body` returned in time, else a description of the failure."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        text = "it did not end"
        try:
            signal.alarm(SECONDS)
            body()
            text = "good"
        except BaseException:
            text = traceback.format_exc()
        finally:
            os.write(writer, text.encode()[:60000])
            os._exit(0)
    os.close(writer)
    return result_of(child, reader)


def result_of(child: int, reader: int) -> str:
    text = b""
    if select.select([reader], [], [], SECONDS + 10)[0]:
        text = os.read(reader, 65536)
    else:
        os.kill(child, signal.SIGKILL)
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if text == b"good" and status == 0:
        return ""
    return f"the child ended with status {status}: {text.decode()}"


def expect_refused(call) -> None:
    """`call` raises InvalidArgument that says that this process is no rank."""
    from farandole import errors

    try:
        call()
    except errors.InvalidArgument as error:
        wanted = f"this process (pid {os.getpid()}) was forked from rank "
        if wanted not in str(error):
            raise AssertionError(f"{error!r} does not say: {wanted}") from error
    else:
        raise AssertionError("it worked in a forked child")
