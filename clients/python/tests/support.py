"""What the tests share: paths, a scripted broker, and the real one."""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import pathlib
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional

HERE = pathlib.Path(__file__).resolve().parent
CLIENT = HERE.parent
ROOT = CLIENT.parent.parent
SOURCE = CLIENT / "src"

# Test this checkout, even if another version is installed.
sys.path.insert(0, str(SOURCE))

# Handlers fail on purpose in many tests; tests of the log capture it themselves.
logging.getLogger("gloom").addHandler(logging.NullHandler())

#: Seconds that a test waits for something that should happen.
PATIENCE = 10.0


def eventually(true: Callable[[], object], what: str = "condition") -> None:
    """Wait until a condition holds; fail when it does not."""
    until = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > until:
            raise AssertionError(f"{what}: not within {PATIENCE} s")
        time.sleep(0.002)


def golden(name: str) -> List[Dict[str, Any]]:
    """The cases of a file of golden frames."""
    path = ROOT / "wire" / "testdata" / name
    cases: List[Dict[str, Any]] = json.loads(path.read_bytes())["cases"]
    if not cases:
        raise AssertionError(f"{path}: no cases")
    return cases


def payload_of(case: Dict[str, Any]) -> bytes:
    """The bytes of a golden frame, without its length."""
    if "hex" in case:
        return bytes.fromhex(case["hex"])
    text: str = case["text"]
    return text.encode("utf-8")


class Peer:
    """A client's connection, as a scripted broker sees it."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(PATIENCE)
        self.sock = sock

    def send(self, *messages: Any) -> None:
        """Send messages, each given as bytes or as an object, in one call."""
        out = b""
        for message in messages:
            if not isinstance(message, bytes):
                message = json.dumps(message).encode()
            out += struct.pack(">I", len(message)) + message
        self.sock.sendall(out)

    def ok(self, id: Optional[str] = None) -> None:
        self.send({"ok": True} if id is None else {"ok": True, "id": id})

    def refuse(self, code: str, id: Optional[str] = None) -> None:
        frame = {"error": code, "reason": f"because of {code}"}
        if id is not None:
            frame["id"] = id
        self.send(frame)

    def recv(self) -> Dict[str, Any]:
        """The next message; ConnectionError at the end."""
        (size,) = struct.unpack(">I", self._exactly(4))
        message = json.loads(self._exactly(size))
        assert isinstance(message, dict)
        return message

    def expect(self, action: str) -> Dict[str, Any]:
        """The next message, which must have this action."""
        message = self.recv()
        if message["action"] != action:
            raise AssertionError(f"{message} instead of {action}")
        return message

    def take(self) -> str:
        """Accept a submit and return its id."""
        id: str = self.expect("submit")["id"]
        self.ok(id)
        return id

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.sock.recv(size - len(data))
            if not piece:
                raise ConnectionError(f"ended after {len(data)} of {size}")
            data += piece
        return data

    def at_end(self) -> bool:
        """Wait for the end of the stream; False if a message arrives instead."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        """Close with a RST."""
        self.sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        self.sock.close()


class FakeBroker:
    """One port of a broker, whose every frame the test writes."""

    def __init__(self) -> None:
        self._peers: List[Peer] = []
        self.start()

    def start(self, port: int = 0) -> None:
        self._server = socket.create_server(("127.0.0.1", port))
        self._server.settimeout(PATIENCE)
        self.addr = "127.0.0.1:%d" % self._server.getsockname()[1]

    def accept(self) -> Peer:
        peer = Peer(self._server.accept()[0])
        self._peers.append(peer)
        return peer

    def stop(self) -> None:
        """Refuse new connections; keep the open ones."""
        self._server.close()

    def __enter__(self) -> "FakeBroker":
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        for peer in self._peers:
            peer.close()


class Relay:
    """Passes connections on to an address, until they are cut."""

    def __init__(self, addr: str) -> None:
        host, _, port = addr.rpartition(":")
        self._to = (host, int(port))
        self._server = socket.create_server(("127.0.0.1", 0))
        self._ends: List[socket.socket] = []
        self.addr = "127.0.0.1:%d" % self._server.getsockname()[1]
        #: The connections passed on, and how often they were cut.
        self.accepted = self.cuts = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def cut(self) -> None:
        """End all connections."""
        ends, self._ends = self._ends, []
        self.cuts += bool(ends)
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End all connections, and accept no more."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near = self._server.accept()[0]
                far = socket.create_connection(self._to)
                self._ends += [near, far]
                self.accepted += 1
                pair = (near, far)
                threading.Thread(target=self._relay, args=pair, daemon=True).start()

    def _relay(self, near: socket.socket, far: socket.socket) -> None:
        with near, far:
            back = threading.Thread(target=self._pass, args=(far, near), daemon=True)
            back.start()
            self._pass(near, far)
            back.join()

    @staticmethod
    def _pass(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                data = source.recv(65536)
                if not data:
                    break
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def closed_port() -> str:
    """An address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return "127.0.0.1:%d" % server.getsockname()[1]


_scratch: List[pathlib.Path] = []


def scratch() -> pathlib.Path:
    """A folder that is removed when the tests are over."""
    if not _scratch:
        _scratch.append(pathlib.Path(tempfile.mkdtemp(prefix="gloom-py-")))
        atexit.register(shutil.rmtree, _scratch[0], ignore_errors=True)
    return _scratch[0]


_building = threading.Lock()


def daemon_binary() -> pathlib.Path:
    """gloomd, built from this repository once per run of the tests."""
    binary = scratch() / "gloomd"
    with _building:
        if not binary.exists():
            try:
                subprocess.run(
                    ["go", "build", "-o", str(binary), "gloom/cmd/gloomd"],
                    cwd=ROOT,
                    check=True,
                    capture_output=True,
                    text=True,
                    timeout=300,
                )
            except FileNotFoundError:
                raise AssertionError("go is not on the PATH: install Go")
            except subprocess.CalledProcessError as err:
                raise AssertionError(f"gloomd does not build:\n{err.stderr}")
    return binary


class Daemon:
    """A running gloomd on ports of its own."""

    def __init__(self, *flags: str) -> None:
        command = [str(daemon_binary()), "--log-format", "json"]
        for flag in ("--submit-addr", "--worker-addr"):
            if flag not in flags:
                command += [flag, "127.0.0.1:0"]
        if "--http-addr" not in flags:
            command += ["--http-addr", ""]
        self.process = subprocess.Popen(
            command + list(flags), stderr=subprocess.PIPE, text=True
        )
        self.log: List[str] = []
        try:
            started = self._started()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        self.submit_addr: str = started["submit_addr"]
        self.worker_addr: str = started["worker_addr"]
        self.http_addr: str = started.get("http_addr", "")
        threading.Thread(target=self._read, daemon=True).start()

    def _started(self) -> Dict[str, Any]:
        late = threading.Timer(PATIENCE, self.process.kill)
        late.start()
        try:
            for line in self._lines():
                with contextlib.suppress(ValueError):
                    entry: Dict[str, Any] = json.loads(line)
                    if entry.get("message") == "gloomd is ready":
                        return entry
        finally:
            late.cancel()
        raise AssertionError("gloomd did not start:\n" + "".join(self.log))

    def _lines(self) -> Iterator[str]:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            yield line

    def _read(self) -> None:
        for _ in self._lines():
            pass

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def stop(self) -> None:
        """Stop it gracefully."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
        if self.process.stderr is not None:
            self.process.stderr.close()

    def __enter__(self) -> "Daemon":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def certificate() -> "tuple[pathlib.Path, pathlib.Path]":
    """A self-signed certificate for 127.0.0.1 and localhost, and its key."""
    cert, key = scratch() / "cert.pem", scratch() / "key.pem"
    if not cert.exists():
        command = "openssl req -x509 -newkey ec -pkeyopt".split()
        command += "ec_paramgen_curve:prime256v1 -nodes -days 2".split()
        command += "-subj /CN=localhost -addext".split()
        command += ["subjectAltName=IP:127.0.0.1,DNS:localhost"]
        command += ["-keyout", str(key), "-out", str(cert)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except FileNotFoundError:
            raise AssertionError("openssl is not on the PATH: install it")
    return cert, key


def trusting(cert: pathlib.Path) -> ssl.SSLContext:
    """A client's context that trusts just this certificate."""
    return ssl.create_default_context(cafile=str(cert))
