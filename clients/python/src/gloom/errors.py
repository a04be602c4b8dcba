"""Everything this package raises about brokers and jobs.

Misuse (an empty id, a body that JSON cannot hold) raises TypeError or
ValueError instead, before anything is sent.
"""

from __future__ import annotations

import copy
from typing import TypeVar


class GloomError(Exception):
    """Base of all errors of this package."""


class ProtocolError(GloomError):
    """The broker sent what the protocol does not allow; the connection is
    dropped."""


class FrameTooLarge(ProtocolError):
    """A frame from the broker is larger than the limit, both in bytes."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"frame of {size} bytes, at most {limit}")
        self.size = size
        self.limit = limit

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.size, self.limit)


class ClosedError(GloomError):
    """Used after close, drain or stop."""


class WindowFull(GloomError):
    """submit found no room in time: too many jobs, or bytes, are outstanding."""


class NotConnected(GloomError):
    """No connection to a broker, or none in time."""


class Unsupported(GloomError):
    """Asked for what a broker of the compat kind lacks."""


class LostError(GloomError):
    """The connection went while a job or a request was pending on it.

    id: the job, None when no job is meant.  addr: the broker.  acked: the
    broker had taken the job.  sent: some of the submit may have left this
    process; False means that it never ran.  cause: what ended the connection.

    The broker clears such a job when it was queued, and discards its answer
    when it was running, unless it was submitted with detach or keep.
    """

    def __init__(
        self,
        cause: BaseException,
        addr: str = "",
        id: str | None = None,
        acked: bool = False,
        sent: bool = True,
    ) -> None:
        about = ""
        if id is not None:
            told = "not sent"
            if acked:
                told = "acked"
            elif sent:
                told = "sent, not acked"
            about = f" with job {id!r} {told}"
        super().__init__(f"connection to {addr} lost{about}: {cause}")
        self.cause = cause
        self.__cause__ = cause
        self.addr = addr
        self.id = id
        self.acked = acked
        self.sent = sent

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.cause, self.addr, self.id, self.acked, self.sent)


class BrokerError(GloomError):
    """An error frame of the broker.

    code: the wire's word.  reason: a sentence for people.  id: the job that
    is meant, None when none is.  lost: the job's last run went with its worker,
    so it may have been done.

    Each code has a subclass.  Each instance is also a RefusedError or a
    JobError, which says what became of the job.
    """

    code = ""

    def __init__(
        self,
        reason: str,
        id: str | None = None,
        code: str = "",
        lost: bool = False,
    ) -> None:
        if code:
            self.code = code
        about = "" if id is None else f" (id {id!r})"
        super().__init__(f"{self._what()}{self.code}: {reason}{about}")
        self.reason = reason
        self.id = id
        self.lost = lost

    def _what(self) -> str:
        return ""

    def __reduce__(self) -> tuple[object, ...]:
        ended = isinstance(self, JobError)
        return from_code, (self.code, self.reason, self.id, ended, self.lost)


class RefusedError(BrokerError):
    """The broker did not take a request: nothing changed.

    Jobs that are too large or whose id is still pending are refused with it
    before they are sent.
    """

    def _what(self) -> str:
        return "refused: "


class JobError(BrokerError):
    """A job that the broker had taken ended without an answer.

    A job with ack=False that meets a draining broker gets one too, though it
    may never have been taken: without an ack nobody can tell.
    """

    def _what(self) -> str:
        return "job ended: "


class MissingField(RefusedError):
    """A required key is not there; the reason names it."""

    code = "missing_field"


class InvalidType(RefusedError):
    """A value of the wrong kind."""

    code = "invalid_type"


class InvalidValue(RefusedError):
    """A value outside its range."""

    code = "invalid_value"


class InvalidAction(RefusedError):
    """An action of the other port."""

    code = "invalid_action"


class UnknownAction(RefusedError):
    """The broker does not know the action."""

    code = "unknown_action"


class InvalidState(RefusedError):
    """Not now, such as a second hello."""

    code = "invalid_state"


class IDExists(RefusedError):
    """The id is held by a job that has not ended."""

    code = "id_exists"


class UnknownID(RefusedError):
    """No such job, or it has ended, or it is not this connection's."""

    code = "unknown_id"


class InvalidJSON(RefusedError):
    """No JSON, no UTF-8, or nested too deep."""

    code = "invalid_json"


class SizeError(RefusedError):
    """Larger than the broker's largest frame."""

    code = "size_error"


class Forbidden(RefusedError):
    """The token lacks the scope or the type."""

    code = "forbidden"


class Unauthorized(RefusedError):
    """No token, or a wrong one."""

    code = "unauthorized"


class Overloaded(RefusedError):
    """A limit of the broker is reached; the reason names it."""

    code = "overloaded"


class JobFailed(JobError):
    """The job's runs have all failed; the reason is the last worker's."""

    code = "job_failed"


class Expired(JobError):
    """The job passed its deadline."""

    code = "expired"


class Cancelled(JobError):
    """The job was cancelled, by its submitter or by an operator."""

    code = "cancelled"


class TakenOver(JobError):
    """Another connection attached to the job, which goes on there."""

    code = "taken_over"


class Draining(BrokerError):
    """The broker is stopping: it refused a job, or ended one it had taken.
    Which of the two tells RefusedError or JobError, one of which it also is.
    """

    code = "draining"


class _DrainingRefused(Draining, RefusedError):
    pass


class _DrainingEnded(Draining, JobError):
    pass


E = TypeVar("E", bound=BaseException)


def again(error: E) -> E:
    """A copy to raise of an error that is kept.  The kept one would collect
    the tracebacks of all who raise it, and through them hold, or even let
    others close, what runs here."""
    twin = copy.copy(error)
    twin.__traceback__ = None
    twin.__cause__ = error.__cause__
    return twin


def _table() -> dict[tuple[str, bool], type[BrokerError]]:
    kinds: dict[tuple[str, bool], type[BrokerError]] = {
        ("draining", False): _DrainingRefused,
        ("draining", True): _DrainingEnded,
    }
    for ended, base in ((False, RefusedError), (True, JobError)):
        for kind in base.__subclasses__():
            kinds.setdefault((kind.code, ended), kind)
    return kinds


_KINDS = _table()

#: Every code this package knows.
CODES = frozenset(code for code, _ in _KINDS)

#: Codes that can end a job which the broker had taken.
END_CODES = frozenset(
    code for code, ended in _KINDS if ended and code != TakenOver.code
)


def from_code(
    code: str,
    reason: str,
    id: str | None = None,
    ended: bool = False,
    lost: bool = False,
) -> BrokerError:
    """The error for a code of the wire, known here or not.

    ended: it ends a job that was taken, rather than refusing a request.
    """
    kind = _KINDS.get((code, ended))
    if kind is None:
        kind = JobError if ended else RefusedError
    return kind(reason, id, code, lost)
