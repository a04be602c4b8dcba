"""Which frame on a submitter's connection belongs to whom.

Replies come in the order of the requests; results, progress and the errors
that end an accepted job come in any order between them.  An error frame with
an id may be either, and telling them apart is the business of this module.
It knows no socket, no clock and no thread.
"""

from __future__ import annotations

from typing import Any, Mapping

from . import wire
from ._replies import Done, Replies
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
    TakenOver,
    Unauthorized,
    UnknownID,
    from_code,
)
from .pending import PendingJob
from .wire import PING, Message


class Demux(Replies):
    """The pending jobs of one connection."""

    def __init__(self, *connection: Any) -> None:
        super().__init__(*connection)
        self._unconfirmed = False
        self.jobs: dict[str, PendingJob] = {}
        #: Set once the broker has said that it is stopping.
        self.draining = False

    def freed(self) -> None:
        """Called once for each job, when it no longer counts against the window."""
        raise NotImplementedError

    @property
    def idle(self) -> bool:
        """Whether nothing is pending."""
        return not self.jobs and not self.awaited

    # What goes out.

    def submit(self, job: PendingJob, done: Done | None = None) -> None:
        """Send a job; done gets None or the refusal in place of the job.

        An id that is still pending here is refused without a frame: its
        refusal could not be told from the end of the first job.
        """
        if job.id in self.jobs:
            self.freed()
            job._failed(IDExists("still pending on this connection", job.id))
            return
        self.jobs[job.id] = job
        job.sent = True
        self._unconfirmed = job.silent and (job.detached or self._unconfirmed)
        done = done or (lambda error: self._submitted(job, error))
        self.ask(job.frame, done, job.id, job.silent)

    def go_on(self, job: PendingJob, again: bool = True) -> None:
        """Attach to a kept job of a connection that was lost, or submit it if that
        had not been done.  again: a job that may run twice is submitted when the
        broker does not know it."""
        if not job.sent:
            self.submit(job)
            return
        self.jobs[job.id] = job

        def attached(error: Exception | None) -> None:
            if error is None:
                self._submitted(job, None)
                return
            unknown = isinstance(error, UnknownID)
            if unknown and job.again and again and self._take(job):
                job.acked = False
                self.submit(job, submitted)
            else:  # it never got there, or ended, or went with its broker
                self._fail(job, LostError(error, self.addr, job.id, job.acked))

        def submitted(error: Exception | None) -> None:
            if isinstance(error, IDExists) and self._take(job):
                # The submit of the lost connection came after the attach.
                self.go_on(job, again=False)
            else:
                self._submitted(job, error)

        progress = True if job.on_progress else None
        frame = wire.request("attach", id=job.id, progress=progress)
        self.ask(frame, attached, job.id)

    def change(self, id: str, fields: Mapping[str, object], done: Done) -> None:
        """Send a change; done gets None or the refusal."""
        job = self.jobs.get(id)
        if job is not None and job.silent and not job.acked:
            # A refusal of the submit must not be mistaken for one of the change.
            self.ping(lambda _: None)
        self.ask(wire.request("change", id=id, **fields), done, id)

    def cancel(self, id: str, done: Done) -> None:
        """Send a cancel; done gets None or the refusal."""
        job = self.jobs.get(id)

        def replied(error: Exception | None) -> None:
            if error is None and job is not None:
                self._fail(job, Cancelled("by its submitter", id))
            done(error)

        self._unconfirmed = False
        self.ask(wire.request("cancel", id=id), replied, id)

    def ping(self, done: Done) -> None:
        """Send a ping; its reply says that all before it was handled."""
        self._unconfirmed = False
        self.ask(PING, done)

    def confirm(self) -> None:
        """Call after each batch of submits: pings when only a ping can tell
        that detached jobs without an ack were taken."""
        if self._unconfirmed:
            self.ping(lambda _: None)

    # What comes in.

    def lose_all(self, cause: Exception, keep: bool = False) -> list[PendingJob]:
        """The connection is gone: what is pending fails now, but for kept jobs, which
        are returned when keep is set."""
        cause = self.refusal or cause
        stayed, kept = {id(frame) for frame in self.unsent}, []
        for job in list(self.jobs.values()):
            job.sent = job.acked or id(job.frame) not in stayed
            if keep and job.kept:
                kept.append(self.jobs.pop(job.id))
            else:
                self._fail(
                    job, LostError(cause, self.addr, job.id, job.acked, job.sent)
                )
        self.lose(cause)
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

    def _take(self, job: PendingJob) -> bool:
        """Whether the job was pending here until now."""
        if self.jobs.get(job.id) is not job:
            return False
        del self.jobs[job.id]
        return True

    def _forget(self, job: PendingJob) -> bool:
        """As _take, and it no longer counts."""
        taken = self._take(job)
        if taken:
            self.freed()
        return taken

    def _fail(self, job: PendingJob, error: Exception) -> None:
        if self._forget(job):
            job._failed(error)

    def on_message(self, message: Message) -> None:
        if message.kind not in (wire.RESULT, wire.PROGRESS):
            return
        job = self.jobs.get(message.id or "")
        if job is None:
            return  # not asked for any more
        if not job.acked and not self.settle(job.id):
            raise ProtocolError(f"news of job {job.id!r} before its ack")
        if message.kind == wire.PROGRESS:
            job._progressed(message)
        elif self._forget(job):
            job._answered(message)

    def on_error(self, error: BrokerError) -> None:
        if isinstance(error, Draining):
            self.draining = True
        id = error.id
        if id is None:
            if isinstance(error, (Overloaded, Unauthorized)):
                raise error  # about the connection
            if isinstance(error, SizeError):
                self.refusal = error
            self.refuse(error)
            return
        job = self.jobs.get(id)
        end: BrokerError = error
        if error.code in END_CODES or error.code == TakenOver.code:
            end = from_code(error.code, error.reason, id, ended=True, lost=error.lost)
        if job is not None and job.acked and end is not error:
            self._fail(job, end)
        elif job is not None and job.silent and not job.acked and self._settles(end):
            pass
        elif self.is_due(id):
            self.refuse(error)
        elif job is not None:
            raise ProtocolError(f"an error about job {id!r} before its turn")

    def _settles(self, error: BrokerError) -> bool:
        """Of a silent submit whose turn it is, every error is the end but the one
        that only a cancel can get."""
        id = error.id or ""
        return error.code != UnknownID.code and self.settle(id, error)
