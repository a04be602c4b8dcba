"""A worker that tests run as a program: run_worker.py ADDRESS [TYPE]."""

import sys

import support  # noqa: F401  (finds the package)

import gloom


def handler(job):
    print("begun", flush=True)
    job.wait(support.PATIENCE)
    raise job.cause


if __name__ == "__main__":
    type = sys.argv[2] if len(sys.argv) > 2 else "echo"
    gloom.Worker(type, handler, sys.argv[1]).run()
