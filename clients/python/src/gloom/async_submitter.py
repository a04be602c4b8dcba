"""The submitter for asyncio, and what both submitters make of a job."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Generator,
    Iterable,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypedDict,
    TypeVar,
    Union,
)

from . import wire
from ._demux import PendingJob
from ._gate import Gate
from ._loop import within
from ._options import Options, Settings, integer, logger, millis
from ._replies import Done
from ._session import Connector, start
from ._trace import with_trace
from .body import RawJSON, encode_body
from .errors import Cancelled, SizeError, Unsupported
from .wire import Message, check_name

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["AsyncPending", "AsyncSubmitter"]

OnProgress = Callable[[Any], None]


class JobOptions(TypedDict, total=False):
    """What a job can ask for.

    id: 1 … 1024 bytes of UTF-8, unique in the broker while the job has not
    ended.  None: a unique one is made.
    priority: larger first, 64 bits; equals go by age.
    delay: seconds before which the job is not handed out.
    timeout: seconds one run may take; then that run has failed.
    retries: runs after the first one, 0 … 1000; None is the broker's.
    backoff: seconds before the first retry, doubled for each further one.
    expires: seconds from now after which the job is not started.
    Durations are rounded up to milliseconds, 0 is none, at most a year
    (backoff: a day).
    detach: the job outlives this submitter; it is done, with the result None, as
    soon as the broker has taken it.
    ack: False saves the broker's ack.
    on_progress: called with what the worker reports on its way, on the thread
    that reads the connection: it must return soon.
    raw: result and progress are RawJSON; None is the submitter's setting.
    groups: 1 … 16 names, such as the tenant or the host, whose limits the job obeys
    and among which a fair type takes turns.
    keep: seconds, a day at most, for which the job's outcome waits when its
    connection is lost.  With it a lost connection is invisible as long as the same
    broker is reached again: the submitter attaches to the job and goes on.  A job
    that the broker does not know then fails with LostError, as it may have run;
    at_least_once: it is submitted again, so that it may run twice.
    age: seconds.  The job stands among its equals as if submitted so long ago.
    headers: an object, 4 KiB at most, for workers that ask for headers.
    """

    id: Optional[str]
    priority: int
    delay: float
    timeout: float
    retries: Optional[int]
    backoff: float
    expires: float
    detach: bool
    ack: bool
    on_progress: Optional[OnProgress]
    raw: Optional[bool]
    groups: Optional[Sequence[str]]
    keep: float
    at_least_once: bool
    age: float
    headers: Union[Mapping[str, Any], RawJSON, None]


def _groups(field: str, names: Any) -> List[str]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(f"{field} {names!r}: not a sequence of names")
    return [check_name(field, name) for name in names]


def _duration(field: str, seconds: Any, most: int = wire.MAX_MS) -> Optional[int]:
    return millis(field, seconds, most) or None


_PRIORITIES = -(2**63), 2**63 - 1

# The wire's key of each option, and what makes its value; None is not sent.
_KEYS: Dict[str, Tuple[str, Callable[[str, Any], object]]] = {
    "priority": ("priority", lambda f, n: integer(f, n, *_PRIORITIES) or None),
    "delay": ("delay_ms", _duration),
    "timeout": ("timeout_ms", _duration),
    "retries": ("retries", lambda f, n: integer(f, n, 0, wire.MAX_RETRIES)),
    "backoff": ("backoff_ms", lambda f, s: _duration(f, s, wire.MAX_BACKOFF_MS)),
    "expires": ("expires_ms", _duration),
    "detach": ("detach", lambda _, yes: True if yes else None),
    "ack": ("ack", lambda _, yes: None if yes else False),
    "on_progress": ("progress", lambda _, wanted: True),
    "groups": ("groups", lambda f, names: _groups(f, names) or None),
    "keep": ("keep_ms", lambda f, s: _duration(f, s, wire.MAX_KEEP_MS)),
    "at_least_once": ("", lambda _, wanted: None),  # for us alone
    "age": ("age_ms", _duration),
    "headers": ("headers", lambda _, headers: headers),
}


def _encode(
    compat: bool,
    id: str,
    type: Optional[str],
    body: object,
    options: Mapping[str, Any],
) -> bytes:
    """A submit frame.  TypeError or ValueError for what cannot be sent, Unsupported
    for what a compat broker would not understand."""
    check_name("id", id)
    if type is not None:
        check_name("type", type)
    fields: Dict[str, object] = {}
    for name, value in options.items():
        if value is None:
            continue
        try:
            key, make = _KEYS[name]
        except KeyError:
            raise TypeError(f"submit has no option {name!r}") from None
        value = make(name, value)
        if value is not None:
            fields[key] = value
    newer = sorted(fields.keys() - {"priority"})
    if compat and newer:
        raise Unsupported(f"not known to a compat broker: {', '.join(newer)}")
    if not compat:
        headers = with_trace(options.get("headers"))
        fields["headers"] = None if headers is None else encode_body(headers)
    return wire.request("submit", id=id, type=type, body=encode_body(body), **fields)


class JobBase(PendingJob):
    """What the two kinds of pending jobs share.

    Futures tell of its end and, when somebody has asked, of its reply.
    """

    _end: Any
    _reply: Any = None

    def __init__(
        self,
        submitter: Any,
        id: str,
        type: Optional[str],
        frame: bytes,
        options: Mapping[str, Any],
        raw: bool,
    ) -> None:
        self.id = id
        #: The job's type, None for the broker's default one.
        self.type = type
        self.frame = frame
        self.detached = bool(options.get("detach"))
        self.kept = bool(options.get("keep"))
        self.again = self.kept and bool(options.get("at_least_once"))
        self.progress = options.get("on_progress") is not None
        self.silent = not options.get("ack", True)
        self._submitter = submitter
        self._raw = raw
        self._on_progress: Optional[OnProgress] = options.get("on_progress")

    def cancel(self) -> bool:
        """Ask the broker to cancel the job; False when it has ended.

        Does not wait: the job then ends with Cancelled or, if the answer was
        faster, with that.  The submitter's cancel waits for the broker's word.
        """
        if self._end.done():
            return False
        self._submitter._ask_cancel(self.id)
        return True

    def cancelled(self) -> bool:
        """Whether the job has ended by being cancelled."""
        return self._end.done() and isinstance(self._end.exception(), Cancelled)

    def _accepted(self) -> None:
        self._replied()
        if self.detached:
            self._end.set_result(None)

    def _progressed(self, message: Message) -> None:
        if self._on_progress is None:
            return
        try:
            self._on_progress(self._value(message, "progress"))
        except Exception:
            logger.exception("on_progress of job %r failed", self.id)

    def _answered(self, message: Message) -> None:
        self._replied()
        self._end.set_result(self._value(message, "body"))

    def _failed(self, error: Exception) -> None:
        self._end.set_exception(error)
        self._replied()

    def _replied(self) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(None)

    def _value(self, message: Message, key: str) -> Any:
        return message.raw(key) if self._raw else message.get(key)


J = TypeVar("J", bound=JobBase)


class AsyncPending(JobBase):
    """A job that was submitted and may not have ended.

    Awaiting it gives the answer's body, None for a detached job, or raises a
    RefusedError, a JobError or a LostError.  It may be awaited repeatedly and
    by several tasks; cancelling such a task leaves the job alone.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._end: "asyncio.Future[Any]" = asyncio.get_running_loop().create_future()

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.shield(self._end).__await__()

    def done(self) -> bool:
        """Whether the job has ended."""
        return self._end.done()

    def exception(self) -> Optional[BaseException]:
        """The error it ended with; InvalidStateError before it has ended."""
        return self._end.exception()

    def result(self) -> Any:
        """The body, or raises the error; InvalidStateError before the end."""
        return self._end.result()

    def add_done_callback(self, callback: "Callable[[AsyncPending], object]") -> None:
        """Call back soon after the end, with this object."""
        self._end.add_done_callback(lambda _: callback(self))

    async def ack(self) -> None:
        """Wait until the broker has taken the job; raises the job's error if
        it was not taken.  Of a job with ack=False nothing may be known until
        it ends."""
        if not self.acked and not self.done():
            if self._reply is None:
                self._reply = self._end.get_loop().create_future()
            await asyncio.shield(self._reply)
        if not self.acked:
            error = self._end.exception()
            if error is not None:
                raise error

    def _failed(self, error: Exception) -> None:
        super()._failed(error)
        self._end.exception()  # nobody need look at it


class AsyncSubmitter:
    """Hands jobs to a broker over one connection; Submitter's asyncio twin.

    Settings, semantics and errors are those of Submitter.  An object belongs
    to the event loop in which it is first used; connecting begins then.
    Entering an async with block waits for the first attempt and raises
    NotConnected, or the RefusedError of all brokers, when none can be had.
    """

    def __init__(
        self,
        *addrs: str,
        window: int = 1024,
        raw: bool = False,
        **settings: "Unpack[Settings]",
    ) -> None:
        if window < 1:
            raise ValueError(f"window {window}: must be at least 1")
        self._options = Options(addrs, "submit", 9998, **settings)
        self._raw = raw
        self._prefix = secrets.token_hex(6) + "-"
        self._numbers = itertools.count(1)
        self._gate = Gate(window)
        self._connector = Connector(self._options, self._gate)
        self._task: "Optional[asyncio.Task[None]]" = None

    def _begin(self) -> None:
        if self._task is None:
            self._task = start(self._connector.run())

    async def connect(self, wait: Optional[float] = None) -> None:
        """Wait until connected; as Submitter.connect."""
        self._begin()
        gate = self._gate
        await gate.wait_async(gate.tried if wait is None else gate.settled, wait)
        gate.check_connected(wait)

    async def __aenter__(self) -> "AsyncSubmitter":
        try:
            await self.connect()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def submit(
        self,
        type: Optional[str],
        body: object = None,
        *,
        wait: Optional[float] = None,
        **options: "Unpack[JobOptions]",
    ) -> AsyncPending:
        """Hand a job in; returns as soon as it is on its way.

        Arguments and errors are those of Submitter.submit.
        """
        self._begin()
        pending = self._make(AsyncPending, self, type, body, options)
        return await self._send(pending, wait)

    async def attach(
        self,
        id: str,
        *,
        on_progress: Optional[OnProgress] = None,
        raw: Optional[bool] = None,
        wait: Optional[float] = None,
    ) -> AsyncPending:
        """Have a kept job's outcome come here; as Submitter.attach."""
        self._begin()
        pending = self._make_attach(AsyncPending, self, id, on_progress, raw)
        return await self._send(pending, wait)

    async def _send(self, pending: AsyncPending, wait: Optional[float]) -> AsyncPending:
        if not await self._gate.wait_async(self._gate.enter, wait):
            self._gate.give_up(wait)
        self._check_size(pending)
        self._connector.submit(pending)
        return pending

    async def do(
        self,
        type: Optional[str],
        body: object = None,
        *,
        wait: Optional[float] = None,
        **options: "Unpack[JobOptions]",
    ) -> Any:
        """Submit a job and return its result; the arguments are submit's.

        When wait seconds have passed, or the task is cancelled, the broker is
        asked to cancel the job; whether it was cancelled in time is not told.
        Raises submit's errors, the job's, and asyncio.TimeoutError.
        """
        loop = asyncio.get_running_loop()
        until = None if wait is None else loop.time() + wait
        pending = await self.submit(type, body, wait=wait, **options)
        try:
            left = None if until is None else max(0.0, until - loop.time())
            return await within(asyncio.shield(pending._end), left)
        finally:
            if not pending.done() and not self._options.compat:
                pending.cancel()

    async def cancel(self, id: str) -> None:
        """Have the broker cancel a job: one of this submitter's, which then
        ends with Cancelled, or anybody's detached one.

        Raises UnknownID when the job had ended, its answer having won, or was
        never there; LostError, NotConnected, Unsupported.
        """
        reply, done = _reply()
        self._ask_cancel(id, done)
        await reply

    async def change(
        self,
        id: str,
        *,
        priority: Optional[int] = None,
        groups: Optional[Sequence[str]] = None,
        delay: Optional[float] = None,
    ) -> None:
        """Change a job that waits; as Submitter.change."""
        self._needs("change")
        fields = {
            "priority": None
            if priority is None
            else integer("priority", priority, *_PRIORITIES),
            "groups": None if groups is None else _groups("groups", groups),
            "delay_ms": None if delay is None else millis("delay", delay),
        }
        self._begin()
        reply, done = _reply()
        self._connector.change(check_name("id", id), fields, done)
        await reply

    async def ping(self) -> None:
        """Ask the broker for a sign of life; errors as of cancel."""
        self._needs("ping")
        self._begin()
        reply, done = _reply()
        self._connector.ping(done)
        await reply

    @property
    def outstanding(self) -> int:
        """Jobs submitted and not ended."""
        return self._gate.outstanding

    async def drain(self, wait: Optional[float] = None) -> None:
        """Take no more jobs, wait for the outstanding ones to end, and close.

        After wait seconds it closes at once and raises asyncio.TimeoutError.
        """
        self._gate.close()
        try:
            if not await self._gate.wait_async(self._gate.empty, wait):
                raise asyncio.TimeoutError(
                    f"{self.outstanding} jobs outstanding after {wait} s"
                )
        finally:
            await self.close()

    async def close(self) -> None:
        """Close at once.  Jobs still pending fail with a LostError whose
        cause is a ClosedError.  May be called repeatedly."""
        self._gate.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            await self._connector.close()

    # What both submitters do.

    def _make(
        self,
        kind: Type[J],
        submitter: object,
        type: Optional[str],
        body: object,
        options: Any,
    ) -> J:
        id, raw = options.pop("id", None), options.pop("raw", None)
        if id is None:
            id = f"{self._prefix}{next(self._numbers)}"
        frame = _encode(self._options.compat, id, type, body, options)
        raw = self._raw if raw is None else raw
        return kind(submitter, id, type, frame, options, raw)

    def _make_attach(
        self,
        kind: Type[J],
        submitter: object,
        id: str,
        on_progress: Optional[OnProgress],
        raw: Optional[bool],
    ) -> J:
        self._needs("attach")
        frame = wire.request(
            "attach", id=check_name("id", id), progress=True if on_progress else None
        )
        raw = self._raw if raw is None else raw
        options = {"on_progress": on_progress, "keep": True}
        return kind(submitter, id, None, frame, options, raw)

    def _check_size(self, pending: JobBase) -> None:
        """Give its place in the window back when the broker would not take it."""
        size, limit = len(pending.frame) - wire.HEADER_LEN, self._connector.max_frame
        if size > limit:
            self._gate.leave()
            raise SizeError(
                f"frame of {size} bytes, at most {limit} are taken", pending.id
            )

    def _needs(self, what: str) -> None:
        if self._options.compat:
            raise Unsupported(f"{what} is not known to a compat broker")

    def _ask_cancel(self, id: str, done: Done = lambda _: None) -> None:
        self._needs("cancel")
        check_name("id", id)
        self._begin()
        self._connector.cancel(id, done)


def _reply() -> "Tuple[asyncio.Future[None], Done]":
    reply: "asyncio.Future[None]" = asyncio.get_running_loop().create_future()

    def done(error: Optional[Exception]) -> None:
        if reply.done():  # the task that asked was cancelled
            return
        if error is None:
            reply.set_result(None)
        else:
            reply.set_exception(error)

    return reply, done
