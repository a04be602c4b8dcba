"""A worker that tests run as a program: run_worker.py ADDRESS [TYPE | async]."""

import asyncio
import signal
import sys
import threading

import support  # noqa: F401  (finds the package)

import gloom


def handler(job):
    print("begun", flush=True)
    if job.body == "signal this thread":
        signal_this_thread()
    job.wait(support.PATIENCE)
    raise job.cause


def signal_this_thread():
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)


async def later(job):
    threading.Timer(0.5, signal_this_thread).start()  # while the loop sleeps


if __name__ == "__main__":
    if sys.argv[2:] == ["async"]:
        asyncio.run(gloom.AsyncWorker("echo", later, sys.argv[1]).run())
        sys.exit()
    type = sys.argv[2] if len(sys.argv) > 2 else "echo"
    gloom.Worker(type, handler, sys.argv[1]).run()
