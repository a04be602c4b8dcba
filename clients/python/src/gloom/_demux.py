"""Which frame on a submitter's connection belongs to whom.

Replies come in the order of the requests; results, progress and the errors
that end an accepted job come in any order between them.  An error frame with
an id may be either, and telling them apart is the business of this module.
It knows no socket, no clock and no thread.
"""

from __future__ import annotations

from collections import deque
from typing import Callable, Deque, Dict, Optional

from . import wire
from .errors import (
    END_CODES,
    BrokerError,
    Cancelled,
    Draining,
    IDExists,
    LostError,
    Overloaded,
    ProtocolError,
    SizeError,
    Unauthorized,
    UnknownID,
    from_code,
)
from .wire import PING, Message

Done = Callable[[Optional[Exception]], None]


class PendingJob:
    """A submitted job as its connection sees it, until it ends."""

    id: str
    #: Sent with "ack":false.
    silent: bool = False
    #: Nothing comes about it once the broker has taken it.
    detached: bool = False
    #: Some of the submit may have left this process.
    sent: bool = False
    #: The broker is known to have taken it.
    acked: bool = False

    def _accepted(self) -> None:
        """The broker has taken the job; for a detached one, the end."""
        raise NotImplementedError

    def _progressed(self, message: Message) -> None:
        raise NotImplementedError

    def _answered(self, message: Message) -> None:
        raise NotImplementedError

    def _failed(self, error: Exception) -> None:
        raise NotImplementedError


class _Request:
    """A frame that will have a reply or, of a silent submit, may have one."""

    __slots__ = ("id", "job", "cancels", "done")

    def __init__(
        self,
        id: Optional[str],
        job: Optional[PendingJob] = None,
        cancels: Optional[PendingJob] = None,
        done: Optional[Done] = None,
    ) -> None:
        self.id = id
        #: What it submits.
        self.job = job
        #: What it cancels, when that is a job of this connection.
        self.cancels = cancels
        self.done = done

    @property
    def silent(self) -> bool:
        return self.job is not None and self.job.silent

    def finish(self, error: Optional[Exception]) -> None:
        if self.done is not None:
            self.done(error)


class Demux:
    """The pending requests and jobs of one connection.

    send takes an encoded frame and the job it submits, if any.  freed is
    called once for each job, when it no longer counts against the window.
    """

    def __init__(
        self,
        send: Callable[[bytes, Optional[PendingJob]], None],
        freed: Callable[[], None],
    ) -> None:
        self._send = send
        self._freed = freed
        self._unconfirmed = False
        self._requests: Deque[_Request] = deque()
        self.jobs: Dict[str, PendingJob] = {}
        #: Set once the broker has said that it is stopping.
        self.draining = False
        #: What the broker said before it closes.
        self.refusal: Optional[BrokerError] = None

    @property
    def idle(self) -> bool:
        """Whether nothing is pending."""
        return not self.jobs and not self._requests

    # What goes out.

    def submit(self, job: PendingJob, frame: bytes) -> None:
        """Send a job.

        An id that is still pending here is refused without a frame: its
        refusal could not be told from the end of the first job.
        """
        if job.id in self.jobs:
            self._freed()
            job._failed(IDExists("still pending on this connection", job.id))
            return
        self._requests.append(_Request(job.id, job))
        self.jobs[job.id] = job
        self._send(frame, job)
        self._unconfirmed = job.silent and (job.detached or self._unconfirmed)

    def cancel(self, id: str, frame: bytes, done: Done) -> None:
        """Send a cancel; done gets None or the refusal."""
        self._ask(_Request(id, None, self.jobs.get(id), done), frame)

    def ping(self, done: Optional[Done]) -> None:
        """Send a ping; its reply says that all before it was handled."""
        self._ask(_Request(None, done=done), PING)

    def confirm(self) -> None:
        """Call after each batch of submits: pings when only a ping can tell
        that detached jobs without an ack were taken."""
        if self._unconfirmed:
            self.ping(None)

    def _ask(self, request: _Request, frame: bytes) -> None:
        self._requests.append(request)
        self._unconfirmed = False
        self._send(frame, None)

    # What comes in.

    def receive(self, message: Message) -> None:
        """Handle one message of the broker, pings excepted.

        Raises ProtocolError, or the broker's own error when it is about the
        whole connection; the connection is then of no use.
        """
        kind = message.kind
        if kind == wire.OK:
            self._ok(message)
        elif kind == wire.ERROR:
            self._error(message)
        elif kind == wire.RESULT or kind == wire.PROGRESS:
            job = self.jobs.get(message.id or "")
            if job is None:
                return  # not asked for any more
            self._confirm(job)
            if kind == wire.PROGRESS:
                job._progressed(message)
                return
            self.jobs.pop(job.id, None)
            self._freed()
            job._answered(message)

    def lost(self, cause: Exception, addr: str) -> None:
        """The connection is gone: everything pending fails now."""
        cause = self.refusal or cause
        requests, self._requests = self._requests, deque()
        jobs, self.jobs = self.jobs, {}
        for job in jobs.values():
            self._freed()
            sent = job.sent or job.acked
            job._failed(LostError(cause, addr, job.id, job.acked, sent))
        for request in requests:
            if request.job is None:
                request.finish(LostError(cause, addr))

    def _ok(self, message: Message) -> None:
        request = self._pop()
        if request is None:
            raise ProtocolError("an ok that nothing asked for")
        id = message.id
        if id is not None and request.id is not None and id != request.id:
            raise ProtocolError(f"an ok for {id!r} instead of {request.id!r}")
        if request.job is not None:
            self._accept(request.job)
            return
        job = request.cancels
        if job is not None and self.jobs.get(job.id) is job:
            del self.jobs[job.id]
            self._freed()
            job._failed(Cancelled("by its submitter", job.id))
        request.finish(None)

    def _pop(self) -> Optional[_Request]:
        """Take the request that the present reply belongs to.  The silent
        ones before it were accepted: else their error had come by now."""
        while self._requests:
            request = self._requests.popleft()
            if not request.silent:
                return request
            assert request.job is not None
            self._accept(request.job)
        return None

    def _accept(self, job: PendingJob) -> None:
        job.acked = True
        if job.detached:
            self.jobs.pop(job.id, None)
            self._freed()
        job._accepted()

    def _confirm(self, job: PendingJob) -> None:
        """News of a job, which the broker must therefore have taken, and with
        it all silent ones before it."""
        if job.acked:
            return
        while self._requests and self._requests[0].silent:
            request = self._requests.popleft()
            assert request.job is not None
            self._accept(request.job)
            if request.job is job:
                return
        raise ProtocolError(f"news of job {job.id!r} before its ack")

    def _error(self, message: Message) -> None:
        code, reason, id = message.get("error"), message.get("reason"), message.id
        error: BrokerError = from_code(code, reason, id)
        if isinstance(error, Draining):
            self.draining = True
        if id is None:
            if isinstance(error, (Overloaded, Unauthorized)):
                raise error  # about the connection
            if isinstance(error, SizeError):
                self.refusal = error
            self._refuse(error)
            return
        job = self.jobs.get(id)
        if job is not None and self._ends(job, code):
            self.jobs.pop(id)
            if not job.acked:
                self._forget(job)
            self._freed()
            if code in END_CODES:
                error = from_code(code, reason, id, ended=True)
            job._failed(error)
            return
        head = next((r for r in self._requests if not r.silent), None)
        if head is not None and head.id == id:
            self._refuse(error)
        elif job is not None:
            raise ProtocolError(f"an error about job {id!r} before its turn")

    def _ends(self, job: PendingJob, code: str) -> bool:
        """Whether an error with a live job's id ends that job, rather than
        replying to a request about it."""
        if job.acked:
            return code in END_CODES
        # Not taken yet, as far as we know.  A submit that awaits its ack is
        # refused by its reply; of a silent one whose turn it is, every error
        # is the end but the one that only a cancel can get.
        if not job.silent or code == UnknownID.code:
            return False
        for request in self._requests:
            if request.job is job:
                return True
            if not request.silent:
                return False
        return False

    def _forget(self, job: PendingJob) -> None:
        """A silent submit was refused: those before it were accepted."""
        while self._requests:
            request = self._requests.popleft()
            if request.job is job:
                return
            assert request.job is not None
            self._accept(request.job)

    def _refuse(self, error: BrokerError) -> None:
        request = self._pop()
        if request is None:
            raise error  # about the connection
        job = request.job
        if job is None:
            request.finish(error)
            return
        self.jobs.pop(job.id, None)
        self._freed()
        job._failed(error)
