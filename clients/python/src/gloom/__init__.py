"""The Python client of the Gloom job broker.

A Submitter submits jobs over one connection that threads can share: do waits
for the answer; submit returns a Pending, which is a concurrent.futures.Future.
A Worker serves jobs of one or more types with a pool of handlers, in threads or
in processes.  AsyncSubmitter and AsyncWorker are the same for asyncio.

    with gloom.Submitter("127.0.0.1:9998") as jobs:
        print(jobs.do("echo", {"text": "hi"}))

    gloom.Worker("echo", lambda job: job.body, "127.0.0.1:9999").run()

Jobs live in the broker's memory and, unless they are detached or kept, end with the
connection of their submitter.  The caller decides then what to do about a job that was
sent: it may have run (LostError).

The path of a job and of its reply, module by module:

  submitter                   takes the job from the caller
  _options, body, wire        check it and encode its frame
  pending                     represents it to the caller
  _connector                  admits it when there is room, and picks its session
  _session                    keeps it until it ends
  _link                       records that a reply will come, and sends its bytes
  ───── the broker, a worker, the broker again ─────
  _link, wire                 split the input into frames and decode them
  _link, _session             find the request or job that a frame belongs to
  pending                     ends, and _connector admits the next job

and of a run in a worker:

  _link, wire                 read the job
  _socket                     counts and queues the jobs of a connection
  worker, _processes          run the handler as a task, in a thread or in a process
  job                         turns what it returns or raises into an answer
  _socket, _link              send the answer and handle the broker's reply

Everything from _connector to pending, and in a worker everything but the handlers,
happens in one event loop: the caller's for AsyncSubmitter and AsyncWorker; for
Submitter and Worker, which wrap them, a loop in a thread of its own (_loop).
"""

from . import errors
from ._options import Event, JobOptions, Notice, Settings
from .body import RawJSON
from .errors import *
from .job import AsyncJob, Fatal, Job, Release, RetryAfter
from .pending import AsyncPending, Pending
from .submitter import AsyncSubmitter, Submitter
from .worker import AsyncWorker, Worker

__version__ = "1.0.0"

# fmt: off
__all__ = [
    "AsyncJob", "AsyncPending", "AsyncSubmitter", "AsyncWorker", "Event", "Fatal",
    "Job", "JobOptions", "Notice", "Pending", "RawJSON", "Release", "RetryAfter",
    "Settings", "Submitter", "Worker",
]
# fmt: on
__all__ += errors.__all__
