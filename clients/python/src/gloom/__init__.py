"""The Python client of the Gloom job broker.

A Submitter submits jobs over one connection that threads can share: do waits
for the answer; submit returns a Pending, which is a concurrent.futures.Future.
A Worker serves jobs of one or more types with a pool of handlers, in threads or
in processes.  AsyncSubmitter and AsyncWorker are the same for asyncio.

    with gloom.Submitter("127.0.0.1:9998") as jobs:
        print(jobs.do("echo", {"text": "hi"}))

    gloom.Worker("echo", lambda job: job.body, "127.0.0.1:9999").run()

With several addresses a submitter uses one broker and moves to the next when
that one is lost or drains; a worker joins all of them.  Both reconnect
automatically, with exponential backoff and full jitter.

Jobs live in the broker's memory and belong to their submitter's connection.
When it is lost, every job pending on it ends at once with a LostError, which
says whether the broker had accepted the job.  The caller decides what to do
then: a job that was sent may have run.  Jobs with keep outlive the connection:
the submitter attaches to them when it reconnects to the same broker.

The path of a job and of its reply, module by module:

  submitter, async_submitter  take the job from the caller
  job_options, body, wire     check it and encode its frame
  pending                     represents it to the caller
  _gate                       admits it when there is room and a connection
  _connector                  passes it to a session with one of the brokers
  _replies                    records the order in which replies will come
  _link                       sends its bytes together with others
  ───── the broker, a worker, the broker again ─────
  _link, wire                 split the input into frames and decode them
  _replies                    finds the request or job that a frame belongs to
  pending                     ends, and _gate admits the next job

and of a run in a worker:

  _link, wire                 read the job
  _socket                     counts and queues the jobs of a connection
  async_worker                runs the handler as a task, and keeps sockets joined
  worker, _processes          run it in a thread or in a process instead
  failure                     turns what it returns or raises into an answer
  _socket, _link              send the answer and handle the broker's reply

Everything from _connector to pending, and in a worker everything but the handlers,
happens in one event loop: the caller's for AsyncSubmitter and AsyncWorker; for
Submitter and Worker, which wrap them, a loop in a thread of its own (_loop).

The package does not store jobs, submit a job twice unless told to, spread one
submitter's jobs over several brokers, or discover brokers.  Bodies are Python
values, or RawJSON where every byte must be preserved.
"""

from . import errors
from ._options import Event, Notice, Settings
from .async_submitter import AsyncSubmitter
from .async_worker import AsyncWorker
from .body import RawJSON
from .errors import *
from .failure import Fatal, Release, RetryAfter
from .job import AsyncJob, Job
from .job_options import JobOptions
from .pending import AsyncPending, Pending
from .submitter import Submitter
from .worker import Worker

__version__ = "1.0.0"

# fmt: off
__all__ = [
    "AsyncJob", "AsyncPending", "AsyncSubmitter", "AsyncWorker", "Event", "Fatal",
    "Job", "JobOptions", "Notice", "Pending", "RawJSON", "Release", "RetryAfter",
    "Settings", "Submitter", "Worker",
]
# fmt: on
__all__ += errors.__all__
