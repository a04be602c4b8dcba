"""Drives the Python client in the tests of all clients, as package agent describes."""

import json
import pathlib
import ssl
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python/src"))

import gloom  # noqa: E402

role, options = sys.argv[1], json.loads(sys.argv[2])
lock = threading.Lock()
settings = {
    "token": options.get("token"),
    "heartbeat": options.get("heartbeat", 0) / 1000,
    "backoff": tuple(ms / 1000 for ms in options["backoff"]),
    "raw": True,
}
settings = {key: value for key, value in settings.items() if value}
if "ca" in options:
    settings["tls"] = ssl.create_default_context(cafile=options["ca"])


def tell(**event):
    with lock:
        print(json.dumps(event), flush=True)


def failure(error):
    kinds = {
        gloom.RefusedError: "refused",
        gloom.JobError: "job",
        gloom.LostError: "lost",
        gloom.NotConnected: "not connected",
        gloom.ClosedError: "closed",
    }
    kind = next((told for one, told in kinds.items() if isinstance(error, one)), None)
    return {
        "kind": kind or repr(error),
        "code": getattr(error, "code", ""),
        "reason": getattr(error, "reason", ""),
        "final": getattr(error, "final", False),
        "lost": getattr(error, "lost", False),
        "acked": getattr(error, "acked", False),
        "sent": getattr(error, "sent", False),
    }


SECONDS = ("delay", "timeout", "backoff", "expires", "age", "keep")
SAME = ("priority", "retries", "at_least_once", "detach", "groups", "headers", "id")


def fields(command, *names):
    found = {name: command[name] for name in names if name in command}
    return {k: v / 1000 if k in SECONDS else v for k, v in found.items()}


def submitter():
    window = options.get("window") or 1024
    jobs = gloom.Submitter(*options["addrs"], window=window, **settings)

    def follow(command, pending):
        tag = command["tag"]

        def ended(job):
            error = job.exception()
            if error is not None:
                tell(tag=tag, error=failure(error))
            else:
                result = job.result()
                tell(tag=tag, result="" if result is None else result.data.decode())

        pending.add_done_callback(ended)
        try:
            pending.ack()
            tell(tag=tag, acked=True)
        except gloom.GloomError:
            pass  # its end tells

    def progress(command):
        if not command.get("progress"):
            return None
        return lambda body: tell(tag=command["tag"], progress=body.data.decode())

    def submit(command):
        how = fields(command, *SECONDS, *SAME)
        body = gloom.RawJSON(command["body"].encode())
        follow(command, jobs.submit(command.get("type"), body, on_progress=progress(command), **how))

    def attach(command):
        follow(command, jobs.attach(command["id"], on_progress=progress(command)))

    def bench(command):
        began = time.monotonic()
        if command["window"] == 1:
            for i in range(command["count"]):
                jobs.do(command["type"], i)
        else:
            pending = [jobs.submit(command["type"], i) for i in range(command["count"])]
            for job in pending:
                job.result()
        tell(tag=command["tag"], seconds=time.monotonic() - began)

    does = {
        "submit": submit,
        "attach": attach,
        "bench": bench,
        "cancel": lambda c: jobs.cancel(c["id"]),
        "change": lambda c: jobs.change(c["id"], **fields(c, "priority", "delay", "groups")),
        "ping": lambda c: jobs.ping(),
        "drain": lambda c: jobs.drain(),
        "leave": lambda c: jobs.leave(),
        "close": lambda c: jobs.close(),
    }

    def run(command):
        try:
            does[command["do"]](command)
            if command["do"] not in ("submit", "attach", "bench"):
                tell(tag=command["tag"], ok=True)
        except Exception as error:
            tell(tag=command["tag"], error=failure(error))

    for line in sys.stdin:
        threading.Thread(target=run, args=(json.loads(line),), daemon=True).start()
    jobs.close()


def worker():
    released = set()

    def handler(job):
        body = job.body.value()
        told = body if isinstance(body, dict) else {}
        if told.get("fail"):
            raise RuntimeError(told["fail"])
        if told.get("fatal"):
            raise gloom.Fatal(told["fatal"])
        if told.get("retry_after"):
            raise gloom.RetryAfter(told["retry_after"] / 1000, "later")
        if told.get("release") and job.id not in released:
            released.add(job.id)
            raise gloom.Release(told["release"] / 1000)
        if told.get("progress"):
            job.progress(told["progress"])
        if told.get("unwanted"):
            job.wait()
            tell(unwanted=job.id)
            raise job.cause
        if told.get("sleep"):
            time.sleep(told["sleep"] / 1000)
        if told.get("exit"):
            import os

            os._exit(1)
        if told.get("headers"):
            return job.headers or {}
        return job.type if told.get("type") else job.body

    def notify(notice):
        if notice.event is gloom.Event.JOINED:
            tell(joined=True)

    types = options["types"]
    gloom.Worker(
        types[0] if len(types) == 1 and "*" not in types[0] else types,
        handler,
        *options["addrs"],
        except_=options.get("except") or (),
        headers=options.get("headers", False),
        concurrency=options.get("concurrency") or 1,
        prefetch=options.get("concurrency") or 1,
        notify=notify,
        **settings,
    ).run()
    tell(left=True)


worker() if role == "worker" else submitter()
