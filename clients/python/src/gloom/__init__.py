"""The Python client of the Gloom job broker.

A Submitter hands jobs in over one connection that threads share: do waits for
the answer, submit returns a Pending, which is a concurrent.futures.Future.  A
Worker serves jobs of one type or more with a pool of handlers, in threads or in
processes.  AsyncSubmitter and AsyncWorker are their twins for asyncio.

    with gloom.Submitter("127.0.0.1:9998") as jobs:
        print(jobs.do("echo", {"text": "hi"}))

    gloom.Worker("echo", lambda job: job.body, "127.0.0.1:9999").run()

With several addresses a submitter uses one broker and turns to the next when
that one is lost or drains; a worker joins all of them.  Both reconnect by
themselves, with exponential backoff and full jitter.

Jobs live in the broker's memory and belong to their submitter's connection.
When it is lost, every job pending on it ends at once with a LostError, which
says whether the broker had taken the job.  What to do then is for the caller
to decide: a job that was sent may have run.  Jobs with keep outlive it: the
submitter attaches to them as soon as it is back at the same broker.

The way of a job and of its reply, module by module:

  submitter, async_submitter  make a job of what they are given
  job_options, body, wire     check it and write its frame
  pending                     is what the caller waits for
  _gate                       lets it in when there is room and a connection
  _connector                  gives it to a session with one of the brokers
  _replies                    notes whose reply comes when
  _link                       sends its bytes together with others
  ───── the broker, a worker, the broker again ─────
  _link, wire                 cut what comes into frames and read them
  _replies                    finds the request, or the job, that one belongs to
  pending                     ends, and _gate lets the next job in

and of a run in a worker:

  _link, wire                 read the job
  _socket                     counts and queues what is out on a connection
  async_worker                runs the handler as a task, and keeps sockets joined
  worker, _processes          run it in a thread or in a process instead
  failure                     makes an answer of what it returns or raises
  _socket, _link              send that, and take what the broker says of it

From _connector and up to pending, and in a worker all but the handlers, this happens
in one event loop: the caller's for AsyncSubmitter and AsyncWorker; for Submitter and
Worker, which have one of these at work inside, a loop in a thread of its own (_loop).

The package does not store jobs, submit a job a second time unless told so,
spread one submitter's jobs over several brokers, or look brokers up.  Bodies are
Python values, or RawJSON where every byte must stay as it is.
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
