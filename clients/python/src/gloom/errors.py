"""The errors that this package raises about brokers and jobs.

Misuse (an empty id, a body that JSON cannot hold) raises TypeError or
ValueError instead, before anything is sent.
"""

import copy
from dataclasses import dataclass
from typing import TypeVar

# fmt: off
__all__ = [
    "BrokerError", "Cancelled", "ClosedError", "Draining", "Expired", "Forbidden",
    "FrameTooLarge", "GloomError", "IDExists", "InvalidAction", "InvalidJSON",
    "InvalidState", "InvalidType", "InvalidValue", "JobError", "JobFailed",
    "LostError", "MissingField", "NotConnected", "Overloaded", "ProtocolError",
    "RefusedError", "SizeError", "TakenOver", "Unauthorized", "UnknownAction",
    "UnknownID", "WindowFull",
]
# fmt: on


#: The class for each code and whether it ends an accepted job.
KINDS: dict[tuple[str, bool], type["BrokerError"]] = {}


class GloomError(Exception):
    """The base class of all errors of this package."""


class ProtocolError(GloomError):
    """The broker violated the protocol; the connection is dropped."""


@dataclass(eq=False, repr=False)
class FrameTooLarge(ProtocolError):
    """A frame from the broker is larger than the limit.  size and limit are in bytes."""

    size: int
    limit: int

    def __str__(self) -> str:
        return f"frame of {self.size} bytes, at most {self.limit}"


class ClosedError(GloomError):
    """The object was used after close, drain or stop."""


class WindowFull(GloomError):
    """submit found no room in time: too many jobs, or bytes, are outstanding."""


class NotConnected(GloomError):
    """No connection to a broker, or none in time."""


@dataclass(eq=False)
class LostError(GloomError):
    """The connection was lost while a job or a request was pending on it.

    id: the job, None if no job is concerned.  addr: the broker.  acked: the
    broker had accepted the job.  sent: part of the submit may have left this
    process; if False, the job never ran.  cause: what ended the connection.

    Unless the job was submitted with detach or keep, the broker discards it if it
    was waiting, and discards its answer if it was running.
    """

    cause: BaseException
    addr: str = ""
    id: str | None = None
    acked: bool = False
    sent: bool = True

    def __post_init__(self) -> None:
        self.__cause__ = self.cause
        self.args = (self.cause,)  # to be pickled with; the rest is in __dict__

    def __str__(self) -> str:
        told = "acked" if self.acked else "sent, not acked" if self.sent else "not sent"
        about = "" if self.id is None else f" with job {self.id!r} {told}"
        return f"connection to {self.addr} lost{about}: {self.cause}"


class BrokerError(GloomError):
    """An error frame of the broker.

    code: the error code of the protocol.  reason: a sentence for people.  id: the
    job concerned, None if there is none.  lost: the worker of the job's last run
    was lost, so that run may have finished.

    Each code has a subclass.  Each instance is also a RefusedError or a JobError,
    which says what happened to the job.
    """

    code = ""
    _what = ""

    def __init_subclass__(cls, code: str = "") -> None:
        if code:
            cls.code = code
            KINDS[code, issubclass(cls, JobError)] = cls

    def __init__(
        self, reason: str, id: str | None = None, code: str = "", lost: bool = False
    ) -> None:
        super().__init__(reason, id, code, lost)
        self.code = code or self.code
        self.reason = reason
        self.id = id
        self.lost = lost

    def __str__(self) -> str:
        about = "" if self.id is None else f" (id {self.id!r})"
        return f"{self._what}{self.code}: {self.reason}{about}"


class RefusedError(BrokerError):
    """The broker refused a request: nothing changed.

    Jobs that are too large or whose id is still pending are refused with it
    before they are sent.
    """

    _what = "refused: "


class JobError(BrokerError):
    """A job that the broker had accepted ended without an answer.

    A job with ack=False that is refused by a draining broker raises it, too: without
    an ack the client cannot know whether the broker had accepted it.
    """

    _what = "job ended: "


class MissingField(RefusedError, code="missing_field"):
    """A required key is missing; the reason names it."""


class InvalidType(RefusedError, code="invalid_type"):
    """A value of the wrong kind."""


class InvalidValue(RefusedError, code="invalid_value"):
    """A value outside its range."""


class InvalidAction(RefusedError, code="invalid_action"):
    """An action of the other port."""


class UnknownAction(RefusedError, code="unknown_action"):
    """The broker does not know the action."""


class InvalidState(RefusedError, code="invalid_state"):
    """The request is not allowed in this state, such as a second hello."""


class IDExists(RefusedError, code="id_exists"):
    """The id is held by a job that has not ended."""


class UnknownID(RefusedError, code="unknown_id"):
    """The job does not exist, has ended, or belongs to another connection."""


class InvalidJSON(RefusedError, code="invalid_json"):
    """The frame is not JSON, not UTF-8, or nested too deep."""


class SizeError(RefusedError, code="size_error"):
    """The frame is larger than the broker accepts."""


class Forbidden(RefusedError, code="forbidden"):
    """The token lacks the scope or the type."""


class Unauthorized(RefusedError, code="unauthorized"):
    """The token is missing or wrong."""


class Overloaded(RefusedError, code="overloaded"):
    """A limit of the broker is reached; the reason names it."""


class JobFailed(JobError, code="job_failed"):
    """All runs of the job have failed; the reason is that of the last one."""


class Expired(JobError, code="expired"):
    """The job passed its deadline."""


class Cancelled(JobError, code="cancelled"):
    """The job was cancelled, by its submitter or by an operator."""


class TakenOver(JobError, code="taken_over"):
    """Another connection attached to the job and gets its outcome."""


class Draining(BrokerError, code="draining"):
    """The broker is stopping: it refused a job, or ended one that it had accepted.
    The error is also a RefusedError in the first case, a JobError in the second.
    """


class _DrainingRefused(Draining, RefusedError, code="draining"):
    pass


class _DrainingEnded(Draining, JobError, code="draining"):
    pass


E = TypeVar("E", bound=BaseException)


def fresh_copy(error: E) -> E:
    """Return a copy of a stored error, to be raised: raising the original would add a
    traceback to it each time, and so keep frames of other callers alive."""
    twin = copy.copy(error)
    twin.__cause__ = error.__cause__
    return twin


def from_code(
    code: str, reason: str, id: str | None, ended: bool = False, lost: bool = False
) -> BrokerError:
    """The error for a code of the protocol, known here or not.  ended: it ends an
    accepted job, rather than refusing a request."""
    kind = KINDS.get((code, ended), JobError if ended else RefusedError)
    return kind(reason, id, code, lost)
