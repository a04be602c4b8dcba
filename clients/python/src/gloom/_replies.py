"""Matches frames of the broker to requests and jobs.

Replies come in the order of the requests; results, progress and the errors
that end an accepted job come in any order between them.  An error with an
id may be either: until the broker is known to have accepted the job it is the
reply to the submit, after that it is the end of the job.

This module uses no sockets, clocks or threads.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Mapping, NamedTuple, Optional

from . import errors, wire
from .errors import BrokerError, LostError, ProtocolError
from .pending import PendingJob
from .wire import Message

#: Called with None when a request was accepted, else with the error.
Done = Callable[[Optional[Exception]], None]


class _Request(NamedTuple):
    done: Done
    id: str | None  # the job that it is about
    silent: bool  # it gets a reply only if it is refused


class Replies:
    """A connection's requests in the order in which their replies come.

    A silent request is known to be accepted as soon as a frame comes that the
    broker sends only after it.
    """

    def __init__(self, addr: str) -> None:
        self.addr = addr  # of the broker
        self.unsent: list[bytes] = []  # frames not written yet
        self.reply: Message | None = None  # the last ok
        self.refusal: BrokerError | None = None  # sent before the broker closes it
        self._requests: deque[_Request] = deque()

    def send(self, frame: bytes) -> None:
        """Send a frame that has no reply."""
        raise NotImplementedError

    def ask(
        self, frame: bytes, done: Done, id: str | None = None, silent: bool = False
    ) -> None:
        """Send a request; done is called with its reply, or with the error that ended
        the connection first."""
        self._requests.append(_Request(done, id, silent))
        self.send(frame)

    @property
    def awaited(self) -> int:
        """Requests without a reply, silent ones included."""
        return len(self._requests)

    def receive(self, message: Message) -> None:
        """Handle one message.  Raises ProtocolError, or the broker's error about the
        whole connection, which cannot be used after that."""
        if message.kind == wire.ERROR:
            code, reason = message.get("error"), message.get("reason")
            lost = message.get("cause") == "lost"
            self.on_error(errors.from_code(code, reason, message.id, lost=lost))
        elif message.kind != wire.OK:
            self.on_message(message)
        else:
            request = self._due()
            if request is None:
                raise ProtocolError("an ok without a request")
            if request.id is not None and message.id not in (None, request.id):
                raise ProtocolError(f"an ok for {message.id!r}, not {request.id!r}")
            self.reply = message
            self._settle(request)

    def on_message(self, message: Message) -> None:
        """Called with each message that is neither an ok nor an error."""

    def on_error(self, error: BrokerError) -> None:
        """Called with each error.  It is the reply to the next request or, if none is
        waiting, about the connection."""
        if isinstance(error, (errors.SizeError, errors.Unauthorized)):
            self.refusal = error
        request = self._due()
        if request is None:
            raise error
        self._settle(request, error)

    def _due(self, id: str | None = None) -> _Request | None:
        """The request whose reply comes next: the first that is not silent, or an
        earlier silent one about this id."""
        for request in self._requests:
            if not request.silent or request.id == id:
                return request
        return None

    def _settle(self, request: _Request, error: Exception | None = None) -> None:
        """Complete a request.  The silent ones before it were accepted, or their errors
        would have come first."""
        while (first := self._requests.popleft()) is not request:
            first.done(None)
        request.done(error)


class Jobs(Replies):
    """The requests of a submitter's connection, and the jobs pending on it."""

    def __init__(self, *connection: Any) -> None:
        super().__init__(*connection)
        self._unconfirmed = False
        self.jobs: dict[str, PendingJob] = {}
        self.draining = False  # the broker has reported that it is stopping

    def freed(self) -> None:
        """Called once for each job, when it no longer counts against the window."""
        raise NotImplementedError

    @property
    def idle(self) -> bool:
        """Whether nothing is pending."""
        return not self.jobs and not self.awaited

    # Requests.

    def submit(self, job: PendingJob) -> None:
        """Send a job.  An id that is still pending here is refused without a frame,
        because the broker's refusal would look like the end of the first job."""
        if job.id in self.jobs:
            self.freed()
            job._failed(errors.IDExists("still pending on this connection", job.id))
            return
        self.jobs[job.id] = job
        self._submit(job, lambda error: self._submitted(job, error))

    def _submit(self, job: PendingJob, done: Done) -> None:
        job.sent = True
        self._unconfirmed = job.silent and (job.detached or self._unconfirmed)
        self.ask(job.frame, done, job.id, job.silent)

    def go_on(self, job: PendingJob) -> None:
        """Attach to a kept job of a lost connection; submit it if it was not sent."""
        if job.sent:
            self.jobs[job.id] = job
            self._attach(job, job.again)
        else:
            self.submit(job)

    def _attach(self, job: PendingJob, again: bool) -> None:
        """again: submit the job if the broker does not know it."""

        def attached(error: Exception | None) -> None:
            here = self.jobs.get(job.id) is job
            if error is None:
                self._submitted(job, None)
            elif again and here and isinstance(error, errors.UnknownID):
                job.acked = False
                self._submit(job, submitted)
            else:  # it never arrived, has ended, or was lost with its broker
                self._lose(job, error)

        def submitted(error: Exception | None) -> None:
            here = self.jobs.get(job.id) is job
            if here and isinstance(error, errors.IDExists):
                # The submit of the lost connection came after the attach.
                self._attach(job, again=False)
            else:
                self._submitted(job, error)

        self.ask(wire.attach(job.id, job.on_progress), attached, job.id)

    def request(
        self, verb: str, id: str | None, fields: Mapping[str, object], done: Done
    ) -> None:
        """Send a cancel, a change or a ping; done gets None or the refusal.  A reply
        shows that everything sent before has been handled."""
        job = self.jobs.get(id or "")
        if verb == "change" and job is not None and job.silent and not job.acked:
            # A refusal of the submit must not be mistaken for one of the change.
            self.request("ping", None, {}, lambda _: None)

        def replied(error: Exception | None) -> None:
            if verb == "cancel" and error is None and job is not None:
                self._fail(job, errors.Cancelled("by its submitter", id))
            done(error)

        self._unconfirmed = False
        self.ask(wire.request(verb, id=id, **fields), replied, id)

    def confirm(self) -> None:
        """Call after each batch of submits.  Sends a ping if only its reply can show
        that detached jobs without an ack were accepted."""
        if self._unconfirmed:
            self.request("ping", None, {}, lambda _: None)

    # Messages.

    def on_message(self, message: Message) -> None:
        if message.kind not in (wire.RESULT, wire.PROGRESS):
            return
        job = self.jobs.get(message.id or "")
        if job is None:
            return  # no longer pending
        if not job.acked:
            request = self._due(job.id)
            if request is None or not request.silent:
                raise ProtocolError(f"a result or progress of job {job.id!r} before its ack")
            self._settle(request)
        if message.kind == wire.PROGRESS:
            job._progressed(message)
        elif self._forget(job):
            job._answered(message)

    def on_error(self, error: BrokerError) -> None:
        if isinstance(error, errors.Draining):
            self.draining = True
        code, id = error.code, error.id
        if id is None:
            if isinstance(error, (errors.Overloaded, errors.Unauthorized)):
                raise error  # about the connection
            super().on_error(error)
            return
        end = error
        if code in errors.END_CODES or code == errors.TakenOver.code:
            end = errors.from_code(code, error.reason, id, ended=True, lost=error.lost)
        job = self.jobs.get(id)
        if job is not None and job.acked and end is not error:
            self._fail(job, end)
            return
        # unknown_id only answers a cancel; any other error may end a silent submit.
        request = self._due(None if code == errors.UnknownID.code else id)
        if request is not None and request.id == id:
            self._settle(request, end if request.silent else error)
        elif job is not None:
            raise ProtocolError(f"an error about job {id!r} out of order")

    def lose(self, cause: Exception, keep: bool = False) -> list[PendingJob]:
        """Fail everything pending, because the connection is gone.  If keep is set,
        kept jobs do not fail but are returned."""
        cause = self.refusal or cause
        stayed, kept = {id(frame) for frame in self.unsent}, []
        for job in list(self.jobs.values()):
            job.sent = job.acked or id(job.frame) not in stayed
            if keep and job.kept:
                kept.append(self.jobs.pop(job.id))
            else:
                self._lose(job, cause)
        requests, self._requests = self._requests, deque()
        for request in requests:
            request.done(LostError(cause, self.addr))
        return kept

    def _submitted(self, job: PendingJob, error: Exception | None) -> None:
        if error is not None:
            self._fail(job, error)
            return
        job.acked = True
        if not job.again:
            job.frame = b""
        if job.detached:
            self._forget(job)
        job._accepted()

    def _lose(self, job: PendingJob, cause: Exception) -> None:
        self._fail(job, LostError(cause, self.addr, job.id, job.acked, job.sent))

    def _fail(self, job: PendingJob, error: Exception) -> None:
        if self._forget(job):
            job._failed(error)

    def _forget(self, job: PendingJob) -> bool:
        """Remove a job; returns whether it was pending here."""
        if self.jobs.get(job.id) is not job:
            return False
        del self.jobs[job.id]
        self.freed()
        return True
