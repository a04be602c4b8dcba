"""A worker that test_worker runs as a program, to send it signals."""

import sys

import support  # noqa: F401  (finds the package)

import gloom


def handler(job):
    print("begun", flush=True)
    job.wait(support.PATIENCE)
    raise job.cause


if __name__ == "__main__":
    gloom.Worker("echo", handler, sys.argv[1]).run()
