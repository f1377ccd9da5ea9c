# SPDX-License-Identifier: Apache-2.0
"""Rendezvous of the processes of a data service. Dispatchers and workers find each other in a registry, which also
tells them when a dispatcher or the service ends.

Messages are lines of JSON over TCP. Received data are never executed. Each side proves that it knows the key by an
HMAC-SHA256 over a random number of the other side.
"""

import fcntl
import hmac
import ipaddress
import json
import os
import secrets
import socket
import socketserver
import struct
import threading
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from ..._threads import start_thread

_MAX_LINE_BYTES = 65536
_SIOCGIFADDR = 0x8915  # Linux: the address of an interface
_SECONDS_TO_SAY = 30  # for a process to send or receive a message, in addition to the time that the request may wait
_ERRORS = {kind.__name__: kind for kind in (IndexError, ValueError, TimeoutError)}

Addresses = Mapping[str, Sequence[Tuple[str, int]]]


def make_secret_key() -> bytes:
    """32 random bytes."""
    return secrets.token_bytes(32)


def own_address() -> str:
    """The IPv4 address under which other hosts probably reach this host. The first that exists of: the address of the
    interface or network in FARANDOLE_NETWORK_INTERFACE, the address of the route to distant networks, the address of
    the first interface except loopback, 127.0.0.1."""
    own = _interface_addresses()
    choice = os.environ.get("FARANDOLE_NETWORK_INTERFACE")
    if choice:
        chosen = [address for name, address in own if name == choice or _is_in_network(address, choice)]
        if chosen:
            return chosen[0]
    # A cluster's network may have no route to other networks.
    others = [address for _, address in own if not ipaddress.ip_address(address).is_loopback]
    return _address_of_route() or (others or ["127.0.0.1"])[0]


def _address_of_route() -> Optional[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("192.0.2.1", 9))  # sends nothing; only selects a route. The address is reserved, and unused
        except OSError:
            return None
        return asked.getsockname()[0]


def _interface_addresses() -> List[Tuple[str, str]]:
    """Names and first IPv4 addresses of this host's interfaces."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("256s", os.fsencode(name)))
            except OSError:  # the interface has no IPv4 address
                continue
            found.append((name, socket.inet_ntoa(answer[20:24])))  # of a struct ifreq with a sockaddr_in
    return found


def _is_in_network(address: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False)
    except ValueError:  # `network` is the name of an interface
        return False


def _sign(key: bytes, *parts: str) -> str:
    return hmac.new(key, "\n".join(parts).encode(), "sha256").hexdigest()


def _read_line(stream: Any) -> str:
    line = stream.readline(_MAX_LINE_BYTES)
    if not line.endswith(b"\n"):
        raise ConnectionError("the connection ended before its message did")
    return line[:-1].decode()


def _write_line(stream: Any, text: str) -> None:
    stream.write(text.encode() + b"\n")
    stream.flush()


class _Conversation(socketserver.StreamRequestHandler):
    timeout = _SECONDS_TO_SAY

    def handle(self) -> None:
        service: "ComputeService" = self.server.service  # type: ignore[attr-defined]
        nonce = secrets.token_hex(16)
        try:
            _write_line(self.wfile, nonce)
            text, signature = _read_line(self.rfile), _read_line(self.rfile)
            if not hmac.compare_digest(_sign(service.key, "ask", nonce, text).encode(), signature.encode()):
                return  # the client does not know the key; no answer
            asked = json.loads(text)
            try:
                said = {"result": service.answer(asked)}
            except tuple(_ERRORS.values()) as error:
                said = {"error": type(error).__name__, "text": str(error.args[0])}
            text = json.dumps(said)
            _write_line(self.wfile, text)
            _write_line(self.wfile, _sign(service.key, "answer", nonce, asked["nonce"], text))
        except (OSError, ValueError, KeyError, TypeError):
            return  # the client is gone, or its message is malformed


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 128


class ComputeService:
    """The registry. Listens on a port of its own, in threads of this process, until `shutdown`."""

    def __init__(self, dispatchers: int, workers_per_dispatcher: int, key: bytes, nics: Any = None):
        """nics: accepted for compatibility with Horovod, without effect; the service listens on all interfaces.

        Raises ValueError if a number is less than 1.
        """
        if dispatchers < 1 or workers_per_dispatcher < 1:
            raise ValueError(
                "dispatchers and workers per dispatcher must be at least 1 each, "
                f"not {dispatchers} and {workers_per_dispatcher}"
            )
        self.key = key
        self._workers_per_dispatcher = workers_per_dispatcher
        # The condition guards all members below, and is notified of each change.
        self._changed = threading.Condition()
        self._dispatchers: List[Optional[str]] = [None] * dispatchers
        self._workers: List[Set[int]] = [set() for _ in range(dispatchers)]
        self._is_over = [False] * dispatchers
        self._stopped: List[Set[int]] = [set() for _ in range(dispatchers)]
        self._ends = False
        self._server = _Server(("", 0), _Conversation)
        self._server.service = self  # type: ignore[attr-defined]
        self._thread = start_thread(self._server.serve_forever, "farandole data service")

    def addresses(self) -> Dict[str, List[Tuple[str, int]]]:
        """(address, port) pairs by interface, in the order in which clients should try them."""
        port = self.get_port()
        return {"host": [(own_address(), port)], "lo": [("127.0.0.1", port)]}

    def get_port(self) -> int:
        return self._server.server_address[1]

    def shutdown(self) -> None:
        """Ends the service, once all clients that wait have their answers. Idempotent. Blocks."""
        with self._changed:
            self._ends = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()  # joins the threads of the connections
        self._thread.join()

    def answer(self, asked: Mapping[str, Any]) -> Any:
        """Executes a request. Raises IndexError, ValueError, TimeoutError with a text for the client."""
        with self._changed:
            return getattr(self, "_on_" + asked["what"])(*asked["arguments"])

    def _on_register_dispatcher(self, dispatcher: int, address: str) -> None:
        self._check(dispatcher)
        known = self._dispatchers[dispatcher]
        if known not in (None, address):
            raise ValueError(f"dispatcher {dispatcher} is {known} already; {address} cannot be it too")
        self._dispatchers[dispatcher] = address
        self._changed.notify_all()

    def _on_dispatcher(self, dispatcher: int, seconds: float) -> Optional[str]:
        self._check(dispatcher)
        self._wait(lambda: self._dispatchers[dispatcher] is not None, seconds, f"dispatcher {dispatcher} to register")
        return self._dispatchers[dispatcher]

    def _on_register_worker(self, dispatcher: int, worker: int) -> None:
        self._check(dispatcher)
        self._workers[dispatcher].add(worker)
        self._changed.notify_all()

    def _on_workers(self, dispatcher: int, seconds: float) -> None:
        self._check(dispatcher)
        workers, wanted = self._workers[dispatcher], self._workers_per_dispatcher
        self._wait(lambda: len(workers) >= wanted, seconds, f"{wanted} workers of dispatcher {dispatcher} to register")

    def _on_dispatcher_over(self, dispatcher: int, seconds: float) -> bool:
        self._check(dispatcher)
        self._is_over[dispatcher] = True
        self._changed.notify_all()
        workers, stopped = self._workers[dispatcher], self._stopped[dispatcher]
        return self._changed.wait_for(lambda: stopped >= workers or self._ends, seconds)

    def _on_end_of_dispatcher(self, dispatcher: int) -> bool:
        self._check(dispatcher)
        self._changed.wait_for(lambda: self._is_over[dispatcher] or self._ends)
        return self._ends

    def _on_worker_stopped(self, dispatcher: int, worker: int) -> None:
        self._check(dispatcher)
        self._stopped[dispatcher].add(worker)
        self._changed.notify_all()

    def _on_shut_down(self) -> None:
        # In a thread of its own, because shutdown() waits for this connection, too.
        start_thread(self.shutdown, "farandole data service end", daemon=False)

    def _on_end(self) -> None:
        self._changed.wait_for(lambda: self._ends)

    def _check(self, dispatcher: int) -> None:
        if not 0 <= dispatcher < len(self._dispatchers):
            raise IndexError(f"dispatchers are 0 to {len(self._dispatchers) - 1}; there is no dispatcher {dispatcher}")

    def _wait(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        if not self._changed.wait_for(lambda: condition() or self._ends, seconds):
            raise TimeoutError(
                f"Timed out after {seconds} s waiting for {what}; see what that process says, or raise the timeout"
            )
        if not condition():
            raise TimeoutError(f"the data service was shut down while this process waited for {what}")


class ComputeClient:
    """Sends requests to a ComputeService. Each call blocks until the service has answered, and raises ConnectionError
    if no service answers."""

    def __init__(self, compute_addresses: Addresses, key: bytes, verbose: int = 1):
        self._compute_addresses = compute_addresses
        self._addresses = [tuple(each) for known in compute_addresses.values() for each in known]
        self._key = key

    def addresses(self) -> Addresses:
        return self._compute_addresses

    def register_dispatcher(self, dispatcher_id: int, dispatcher_address: str) -> None:
        """Publishes a dispatcher's address. Raises IndexError, and ValueError if a different address is registered."""
        self._ask("register_dispatcher", dispatcher_id, dispatcher_address)

    def wait_for_dispatcher_registration(self, dispatcher_id: int, timeout: float) -> str:
        """Blocks until the dispatcher is registered. Returns its
        address. timeout: seconds. Raises IndexError, TimeoutError."""
        return self._ask("dispatcher", dispatcher_id, timeout, seconds=timeout)

    def register_worker_for_dispatcher(self, dispatcher_id: int, worker_id: int) -> None:
        """Adds a worker to a dispatcher. Raises IndexError."""
        self._ask("register_worker", dispatcher_id, worker_id)

    def wait_for_dispatcher_worker_registration(self, dispatcher_id: int, timeout: float) -> None:
        """Blocks until all workers of the dispatcher are registered.
        timeout: seconds. Raises IndexError, TimeoutError."""
        self._ask("workers", dispatcher_id, timeout, seconds=timeout)

    def end_dispatcher(self, dispatcher_id: int, timeout: float) -> bool:
        """Makes the workers of a dispatcher stop before the dispatcher does; otherwise they would retry until they give
        up. timeout: seconds to wait for the workers. Returns True if all workers have stopped or the service has ended.
        Raises IndexError."""
        return self._ask("dispatcher_over", dispatcher_id, timeout, seconds=timeout)

    def wait_for_end_of_dispatcher(self, dispatcher_id: int) -> bool:
        """Blocks until the dispatcher is about to end, or the service has ended. Returns True if the service has ended.
        Raises IndexError."""
        return self._ask("end_of_dispatcher", dispatcher_id, seconds=None)

    def tell_stopped(self, dispatcher_id: int, worker_id: int) -> None:
        """Reports that a worker has stopped. Raises IndexError."""
        self._ask("worker_stopped", dispatcher_id, worker_id)

    def shutdown(self) -> None:
        """Ends the service."""
        self._ask("shut_down")

    def wait_for_shutdown(self) -> None:
        """Blocks until the service has ended."""
        self._ask("end", seconds=None)

    def _ask(self, what: str, *arguments: Any, seconds: Optional[float] = 0) -> Any:
        failed = []
        for address in self._addresses:
            try:
                connection = socket.create_connection(address, _SECONDS_TO_SAY)
            except OSError as error:
                failed.append(f"{address[0]}:{address[1]}: {error}")
                continue
            with connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                connection.settimeout(None if seconds is None else _SECONDS_TO_SAY + seconds)
                try:
                    said = self._converse(connection, what, arguments)
                except (OSError, ValueError) as error:
                    failed.append(f"{address[0]}:{address[1]}: {error}")
                    continue
            if "error" in said:
                raise _ERRORS[said["error"]](said["text"])
            return said["result"]
        raise ConnectionError(f"no data service answers: {'; '.join(failed)}; is it running, with the same file?")

    def _converse(self, connection: socket.socket, what: str, arguments: Sequence[Any]) -> Dict[str, Any]:
        own_nonce = secrets.token_hex(16)
        with connection.makefile("rwb") as stream:
            nonce = _read_line(stream)
            text = json.dumps({"what": what, "arguments": arguments, "nonce": own_nonce})
            _write_line(stream, text)
            _write_line(stream, _sign(self._key, "ask", nonce, text))
            text, signature = _read_line(stream), _read_line(stream)
        if not hmac.compare_digest(_sign(self._key, "answer", nonce, own_nonce, text).encode(), signature.encode()):
            raise ConnectionError("it does not have the key of this file")
        return json.loads(text)
