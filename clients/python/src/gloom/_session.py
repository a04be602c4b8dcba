"""A submitter's connection: finds the job that a frame of the broker is about.

Results, progress and the errors that end an accepted job come in any order between the
replies to requests.  An error with an id may be either: until the broker is known to
have accepted the job it is the reply to the submit, after that it is the end of the job.
"""

import asyncio
from typing import TYPE_CHECKING

from . import errors, wire
from ._link import Done, Link
from ._options import Options
from .errors import BrokerError, LostError, NotConnected, ProtocolError
from .pending import PendingJob
from .wire import Fields, Message

if TYPE_CHECKING:
    from ._connector import Connector


class Session(Link):
    """One connection, and the jobs and requests pending on it."""

    jobs: dict[str, PendingJob]

    def __init__(self, options: Options, addr: str, connector: "Connector") -> None:
        super().__init__(options, addr)
        self._connector = connector
        self._unconfirmed = False
        # Requests about kept jobs that were made after this connection was lost.
        self.later: list[tuple[str, str | None, Fields, Done]] = []
        self.over = asyncio.Event()  # set when it is lost, or the broker is stopping

    def _flush(self) -> None:
        if self._unconfirmed:
            # Only its reply can show that detached jobs without an ack were accepted.
            self.request("ping", None, {}, lambda _: None)
        super()._flush()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._connector.wake()

    # Requests.

    def submit(self, job: PendingJob) -> None:
        """Send a job.  An id that is still pending here is refused without a frame,
        because the broker's refusal would look like the end of the first job."""
        if job.id in self.jobs:
            self._connector.release()
            job._failed(errors.IDExists("still pending on this connection", job.id))
            return
        self.jobs[job.id] = job
        self._submit(job, lambda error: self._submitted(job, error))

    def _submit(self, job: PendingJob, done: Done) -> None:
        job.sent = True
        self._unconfirmed = job.silent and (job.detached or self._unconfirmed)
        self.ask(job.frame, done, job.id, job.silent)

    def take_over(self, last: "Session") -> None:
        """Take over the kept jobs of a lost connection: attach to those that were sent,
        which only their broker knows, and submit the others."""
        for job in list(last.jobs.values()):
            if not job.sent:
                self.submit(job)
            elif self.addr == last.addr:
                self.jobs[job.id] = job
                self._resume(job)
            else:
                last._lose(job, NotConnected(f"now connected to {self.addr}"))
        last.jobs.clear()
        for request in last.later:
            self.request(*request)

    def _resume(self, job: PendingJob, step: int = 0) -> None:
        """Attach to a job; the second step submits it again, and the third attaches."""

        def replied(error: Exception | None) -> None:
            here = self.jobs.get(job.id) is job
            unknown = step == 0 and job.resubmit and isinstance(error, errors.UnknownID)
            late = step == 1 and isinstance(error, errors.IDExists)  # the lost submit
            if here and (unknown or late):
                self._resume(job, step + 1)
            elif isinstance(error, errors.RefusedError):  # it may have run before
                self._lose(job, error)
            else:
                self._submitted(job, error)

        if step == 1:
            job.replied = False
            self._submit(job, replied)
        else:
            self.ask(wire.attach(job.id, job.on_progress), replied, job.id)

    def request(self, verb: str, id: str | None, fields: Fields, done: Done) -> None:
        """Send a cancel, a change or a ping; done gets None or the refusal.  A reply
        shows that everything sent before has been handled."""
        job = self.jobs.get(id or "")
        if verb == "change" and job is not None and job.silent and not job.replied:
            # A refusal of the submit must not be mistaken for one of the change.
            self.request("ping", None, {}, lambda _: None)

        if verb == "cancel" and job is not None:
            job.resubmit = False

        def replied(error: Exception | None) -> None:
            if verb == "cancel" and error is None and job is not None:
                self._fail(job, errors.Cancelled("by its submitter", id))
            done(error)

        self._unconfirmed = False
        self.ask(wire.request(verb, id=id, **fields), replied, id)

    # Messages.

    def on_message(self, message: Message) -> None:
        if message.kind not in (wire.RESULT, wire.PROGRESS):
            return
        job = self.jobs.get(message.id or "")
        if job is None:
            return  # no longer pending
        if not job.replied:
            request = self._next_request(job.id)
            if request is None or not request.silent:
                raise ProtocolError(f"a result or progress of job {job.id!r} before its ack")
            self._complete(request)
        if message.kind == wire.PROGRESS:
            job._progressed(message)
        elif self._forget(job):
            job._answered(message)

    def on_error(self, error: BrokerError) -> None:
        if isinstance(error, errors.Draining):
            self.over.set()
        code, id = error.code, error.id
        if id is None:
            if isinstance(error, (errors.Overloaded, errors.Unauthorized)):
                raise error  # about the connection
            super().on_error(error)
            return
        end = errors.from_code(code, error.reason, id, ended=True, lost=error.lost)
        job, ends = self.jobs.get(id), (code, True) in errors.KINDS
        # unknown_id only answers a cancel; any other error may end a silent submit.
        request = self._next_request(None if code == errors.UnknownID.code else id)
        if request is not None and request.id != id:
            request = None
        if job is not None and job.replied and (ends or request is None):
            self._fail(job, end)
        elif request is not None:
            self._complete(request, end if ends and request.silent else error)
        elif job is not None:
            raise ProtocolError(f"an error about job {id!r} out of order")

    def lose(self, cause: Exception, keep: bool = False) -> None:
        """Fail everything pending, because the connection is gone.  If keep is set, kept
        jobs do not fail."""
        stayed, kept = {id(frame) for frame in self.unsent}, {}
        for job in list(self.jobs.values()):
            job.sent = job.acked or id(job.frame) not in stayed
            if keep and job.kept:
                kept[job.id] = self.jobs.pop(job.id)
            else:
                self._lose(job, cause)
        waiting = [request.done for request in self._requests]
        self._requests.clear()
        if not keep:
            waiting += [done for *_, done in self.later]
            self.later.clear()
        for done in waiting:
            done(LostError(cause, self.addr))
        self.jobs = kept

    def _submitted(self, job: PendingJob, error: Exception | None) -> None:
        if error is not None:
            self._fail(job, error)
            return
        job.acked = job.replied = True
        if not job.resubmit:
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
        self._connector.release()
        return True
