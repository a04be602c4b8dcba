"""Trace context in headers, with a stand-in for OpenTelemetry."""

import asyncio
import contextvars
import threading
import unittest
from unittest import mock

from support import PATIENCE, FakeBroker

import gloom
from gloom import RawJSON

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Tracing:
    """The part of OpenTelemetry that is used: a propagator, and the context."""

    def __init__(self):
        self.span = contextvars.ContextVar("span", default=None)

    def inject(self, carrier):
        if self.span.get() is not None:
            carrier["traceparent"] = self.span.get()

    def extract(self, carrier):
        return carrier["traceparent"]

    def attach(self, context):
        return self.span.set(context)

    def detach(self, token):
        self.span.reset(token)


class Traced(unittest.TestCase):
    def setUp(self):
        self.broker = FakeBroker()
        self.addCleanup(self.broker.__exit__)
        self.tracing = Tracing()
        patch = mock.patch.multiple(
            "gloom._trace",
            create=True,
            installed=True,
            context=self.tracing,
            _propagator=self.tracing,
        )
        patch.start()
        self.addCleanup(patch.stop)

    def test_submit(self):
        with gloom.Submitter(self.broker.addr) as jobs:
            peer = self.broker.accept()
            jobs.submit("echo", headers={"k": 1})
            self.assertEqual(peer.recv()["headers"], {"k": 1})
            jobs.submit("echo")
            self.assertNotIn("headers", peer.recv())
            self.tracing.span.set(PARENT)
            for headers, want in (
                (None, {"traceparent": PARENT}),
                ({"k": 1}, {"k": 1, "traceparent": PARENT}),
                ({"traceparent": "mine"}, {"traceparent": "mine"}),
                (RawJSON(b"{}"), {}),
            ):
                jobs.submit("echo", headers=headers)
                self.assertEqual(peer.recv()["headers"], want)

    def serve(self, peer):
        """Serves jobs with each kind of header, and records the handler's span."""
        join = peer.expect("join")
        peer.ok()
        self.assertIs(join["headers"], True)
        seen = []
        for headers in (
            {"headers": {"traceparent": PARENT, "k": 1}},
            {"headers": {"traceparent": 5}},
            {},
        ):
            job = {"action": "job", "id": "a", "type": "echo", "body": 1}
            peer.send({**job, **headers})
            seen.append(peer.expect("respond")["body"])
            peer.ok()
        return seen

    def test_worker(self):
        worker = gloom.Worker(
            "echo", lambda job: self.tracing.span.get(), self.broker.addr
        )
        running = threading.Thread(target=worker.run)
        running.start()
        peer = self.broker.accept()
        self.assertEqual(self.serve(peer), [PARENT, None, None])
        worker.leave()
        peer.expect("leave")
        peer.ok()
        running.join(PATIENCE)
        self.assertTrue(worker.done)

    def test_async_worker(self):
        async def handler(job):
            return self.tracing.span.get()

        async def run():
            worker = gloom.AsyncWorker("echo", handler, self.broker.addr)
            running = asyncio.ensure_future(worker.run())
            peer = await asyncio.to_thread(self.broker.accept)
            seen = await asyncio.to_thread(self.serve, peer)
            worker.leave()
            await asyncio.to_thread(peer.expect, "leave")
            peer.ok()
            await asyncio.wait_for(running, PATIENCE)
            return seen

        self.assertEqual(asyncio.run(run()), [PARENT, None, None])


if __name__ == "__main__":
    unittest.main()
