"""Submitters and workers together, on the real daemon."""

import asyncio
import concurrent.futures
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

from support import (
    HERE,
    PATIENCE,
    Daemon,
    Relay,
    certificate,
    daemon_binary,
    eventually,
    scratch,
    trusting,
)

import gloom
from gloom import Event, Fatal, RawJSON, RetryAfter
from gloom.body import encode_body

FAST = (0.005, 0.05)

# Bodies that must arrive byte for byte.
BODIES = (
    b"null",
    b"0",
    b'""',
    b"[]",
    b"-0.0e-0",
    b"123456789012345678901234567890",
    b"1E400",
    b'{"z":1,"a":2,"z":3}',
    b'{ "spaced" : [ 1 , 2 ] }',
    b'"\\u00e9\\/\\ud800 \\u0000"',
    "\"é漢😀\u2028\"".encode(),
    b"1" * 5000,
    b"[" * 1000 + b"]" * 1000,
    b'"' + b"x" * 1_000_000 + b'"',
)


def echo(job):
    return job.body


def setUpModule():
    daemon_binary()


class DaemonCase(unittest.TestCase):
    """One daemon for the tests of a class, a job type for each test."""

    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(*cls.flags)
        cls.addClassCleanup(cls.daemon.stop)

    def setUp(self):
        self.type = self.id().rpartition(".")[2]

    def submitter(self, *addrs, **settings):
        settings.setdefault("backoff", FAST)
        settings.setdefault("notify", lambda _: None)
        submitter = gloom.Submitter(
            *(addrs or (self.daemon.submit_addr,)), **settings
        )
        self.addCleanup(submitter.close)
        return submitter

    def worker(self, handler, *addrs, **settings):
        settings.setdefault("backoff", FAST)
        worker = gloom.Worker(
            self.type, handler, *(addrs or (self.daemon.worker_addr,)), **settings
        )
        worker.start(PATIENCE)
        self.addCleanup(worker.stop, PATIENCE)
        return worker


class Jobs(DaemonCase):
    def test_bodies_are_verbatim(self):
        for settings in ({}, {"prefetch": 4}, {"processes": True}):
            with self.subTest(settings):
                worker = self.worker(echo, raw=True, **settings)
                with self.submitter(raw=True) as jobs:
                    for body in BODIES:
                        got = jobs.do(self.type, RawJSON(body), wait=PATIENCE)
                        self.assertEqual(got.data, body)
                worker.stop(PATIENCE)

    def test_bodies_as_values(self):
        value = {"a": [1, 2.5, None, True, "é\ud800"], "b": {"c": 2**70}}
        self.worker(echo)
        with self.submitter() as jobs:
            self.assertEqual(jobs.do(self.type, value, wait=PATIENCE), value)
            deep = RawJSON(b'{"a":[' * 511 + b"]}" * 511)
            got = jobs.do(self.type, deep, wait=PATIENCE)
            self.assertEqual(encode_body(got), deep.data)

    def test_names(self):
        self.type = 'ty"pe\\ é漢\x00'
        self.worker(lambda job: [job.id, job.type])
        with self.submitter() as jobs:
            for id in ("a", 'q"\\/\n\x1f', "é" * 512, "\u2028<>&"):
                got = jobs.do(self.type, id=id, wait=PATIENCE)
                self.assertEqual(got, [id, self.type])

    def test_default_type(self):
        self.type = "default"
        self.worker(echo)
        with self.submitter() as jobs:
            self.assertEqual(jobs.do(None, 5, wait=PATIENCE), 5)

    def test_many(self):
        with self.submitter(window=100) as jobs:
            pending = {
                jobs.submit(self.type, n, ack=n % 3 > 0): n for n in range(100)
            }
            for settings in (
                {"concurrency": 2},
                {"concurrency": 2, "prefetch": 10},
            ):
                self.worker(lambda job: job.body * job.body, **settings)
            for n in range(100, 2000):
                pending[jobs.submit(self.type, n, ack=n % 3 > 0)] = n
            for job in concurrent.futures.as_completed(pending, PATIENCE):
                self.assertEqual(job.result(), pending[job] ** 2)
            self.assertEqual(jobs.outstanding, 0)

    def test_priorities(self):
        order = []
        with self.submitter() as jobs:
            pending = [
                jobs.submit(self.type, [priority, n], priority=priority)
                for n, priority in enumerate((0, 5, -(2**63), 2**63 - 1, 5, 0))
            ]
            pending[-1].ack(PATIENCE)
            self.worker(lambda job: order.append(job.body))
            concurrent.futures.wait(pending, PATIENCE)
        want = [[2**63 - 1, 3], [5, 1], [5, 4], [0, 0], [0, 5], [-(2**63), 2]]
        self.assertEqual(order, want)

    def test_id_exists(self):
        with self.submitter() as one, self.submitter() as other:
            one.submit(self.type, id="a").ack(PATIENCE)
            with self.assertRaises(gloom.IDExists):
                other.submit(self.type, id="a").result(PATIENCE)
            with self.assertRaises(gloom.IDExists):
                one.submit(self.type, id="a").result(PATIENCE)
            one.cancel("a", PATIENCE)
            other.submit(self.type, id="a").ack(PATIENCE)

    def test_too_large(self):
        with self.submitter(max_frame=2**26) as jobs:
            first = jobs.submit(self.type)
            first.ack(PATIENCE)
            with self.assertRaises((gloom.SizeError, gloom.LostError)):
                jobs.submit(self.type, "x" * 2**25).result(PATIENCE)
            self.assertIsInstance(first.exception(PATIENCE), gloom.LostError)
            self.worker(echo)
            self.assertEqual(jobs.do(self.type, 1, wait=PATIENCE), 1)

    def test_ping(self):
        with self.submitter() as jobs:
            jobs.ping(PATIENCE)

    def test_hello_tells_the_limits(self):
        with self.submitter(client="test/1", max_frame=2**30) as jobs:
            with self.assertRaisesRegex(gloom.SizeError, "at most 16777216"):
                jobs.submit(self.type, "x" * 2**24)

    def test_threads_die_with_their_runs_only(self):
        self.worker(lambda job: sys.exit(3) if job.body else "fine")
        with self.submitter() as jobs:
            with self.assertRaisesRegex(gloom.JobFailed, "SystemExit: 3"):
                jobs.do(self.type, True, retries=0, wait=PATIENCE)
            self.assertEqual(jobs.do(self.type, False, wait=PATIENCE), "fine")


class Options(DaemonCase):
    """Options of jobs, progress, cancel and heartbeat."""

    def test_delay(self):
        self.worker(echo)
        with self.submitter() as jobs:
            begun = time.monotonic()
            jobs.do(self.type, delay=0.15, wait=PATIENCE)
            self.assertGreaterEqual(time.monotonic() - begun, 0.15)

    def test_timeout(self):
        causes = []

        def handler(job):
            job.wait(PATIENCE)
            causes.append(job.cause)

        self.worker(handler)
        with self.submitter() as jobs:
            with self.assertRaises(gloom.JobFailed):
                jobs.do(self.type, timeout=0.05, retries=0, wait=PATIENCE)
            eventually(lambda: causes)
        self.assertIsInstance(causes[0], gloom.Cancelled)

    def test_retries(self):
        runs = []

        def handler(job):
            runs.append(time.monotonic())
            if len(runs) < job.body:
                raise ValueError("not yet")
            return len(runs)

        self.worker(handler)
        with self.submitter() as jobs:
            got = jobs.do(self.type, 3, retries=2, backoff=0.05, wait=PATIENCE)
            self.assertEqual(got, 3)
            self.assertGreaterEqual(runs[1] - runs[0], 0.05)
            self.assertGreaterEqual(runs[2] - runs[1], 0.1)
            runs.clear()
            with self.assertRaisesRegex(gloom.JobFailed, "ValueError: not yet"):
                jobs.do(self.type, 9, retries=1, wait=PATIENCE)
            self.assertEqual(len(runs), 2)

    def test_fatal_and_retry_after(self):
        runs = []

        def handler(job):
            runs.append(time.monotonic())
            if job.body == "fatal":
                raise Fatal("never works")
            if len(runs) == 1:
                raise RetryAfter(0.1)
            return "done"

        self.worker(handler)
        with self.submitter() as jobs:
            with self.assertRaisesRegex(gloom.JobFailed, "never works"):
                jobs.do(self.type, "fatal", wait=PATIENCE)
            self.assertEqual(len(runs), 1)
            runs.clear()
            got = jobs.do(self.type, "later", backoff=3600, wait=PATIENCE)
            self.assertEqual(got, "done")
            self.assertGreaterEqual(runs[1] - runs[0], 0.1)

    def test_expires(self):
        with self.submitter() as jobs:
            with self.assertRaises(gloom.Expired) as caught:
                jobs.do(self.type, expires=0.05, wait=PATIENCE)
            self.assertIsInstance(caught.exception, gloom.JobError)
            with self.assertRaises(gloom.InvalidValue):
                jobs.do(self.type, expires=1, delay=2, wait=PATIENCE)

    def test_detach(self):
        done = threading.Event()
        with self.submitter() as jobs:
            for ack in (True, False):
                job = jobs.submit(self.type, detach=True, ack=ack)
                self.assertIsNone(job.result(PATIENCE))
        seen = []

        def handler(job):
            seen.append(job.id)
            if len(seen) == 2:
                done.set()

        self.worker(handler)
        self.assertTrue(done.wait(PATIENCE))

    def test_detached_can_be_cancelled_by_anybody(self):
        with self.submitter() as one:
            one.submit(self.type, id="det", detach=True).result(PATIENCE)
        with self.submitter() as other:
            other.cancel("det", PATIENCE)
            with self.assertRaises(gloom.UnknownID):
                other.cancel("det", PATIENCE)

    def test_no_ack(self):
        with self.submitter() as jobs:
            jobs.submit(self.type, id="a").ack(PATIENCE)
            with self.submitter() as other:
                refused = other.submit(self.type, id="a", ack=False)
                self.assertIsInstance(refused.exception(PATIENCE), gloom.IDExists)
            pending = [jobs.submit(self.type, n, ack=False) for n in range(20)]
            self.worker(echo)
            got = [job.result(PATIENCE) for job in pending]
            self.assertEqual(got, list(range(20)))

    def test_progress(self):
        for settings in ({}, {"prefetch": 3}):
            told = []

            def handler(job):
                for n in range(5):
                    job.progress({"done": n / 5})
                return "all"

            worker = self.worker(handler, **settings)
            with self.submitter() as jobs:
                got = jobs.do(self.type, on_progress=told.append, wait=PATIENCE)
                self.assertEqual(got, "all")
                self.assertEqual(told, [{"done": n / 5} for n in range(5)])
                self.assertEqual(jobs.do(self.type, wait=PATIENCE), "all")
            worker.stop(PATIENCE)

    def test_cancel(self):
        running, causes = threading.Event(), []

        def handler(job):
            running.set()
            job.wait(PATIENCE)
            causes.append(job.cause)

        self.worker(handler)
        with self.submitter() as jobs:
            first, second = jobs.submit(self.type), jobs.submit(self.type)
            self.assertTrue(running.wait(PATIENCE))
            jobs.cancel(second.id, PATIENCE)
            jobs.cancel(first.id, PATIENCE)
            for job in first, second:
                with self.assertRaises(gloom.Cancelled):
                    job.result(PATIENCE)
            eventually(lambda: causes)
            self.assertIsInstance(causes[0], gloom.Cancelled)
            with self.assertRaises(gloom.UnknownID):
                jobs.cancel(first.id, PATIENCE)

    def test_submitter_gone(self):
        running, causes = threading.Event(), []

        def handler(job):
            running.set()
            job.wait(PATIENCE)
            causes.append(job.cause)

        self.worker(handler)
        with self.submitter() as jobs:
            jobs.submit(self.type)
            self.assertTrue(running.wait(PATIENCE))
        eventually(lambda: causes)
        self.assertIsInstance(causes[0], gloom.Cancelled)

    def test_heartbeat_during_work(self):
        beat = 2  # two of them outlast a stall of the machine
        lost = []

        def notify(notice):
            if notice.event is Event.LOST:
                lost.append(notice)

        def handler(job):
            return job.wait(3 * beat)  # long enough to be dropped, if silent

        self.worker(handler, heartbeat=beat, notify=notify)
        with self.submitter(heartbeat=beat, notify=notify) as jobs:
            self.assertIs(jobs.do(self.type, retries=0, wait=PATIENCE), False)
        self.assertEqual(lost, [])

    def test_processes(self):
        self.worker(in_process, processes=True, concurrency=2)
        with self.submitter() as jobs:
            pids = {jobs.do(self.type, "pid", wait=PATIENCE) for _ in range(6)}
            self.assertNotIn(os.getpid(), pids)
            self.assertLessEqual(len(pids), 2)
            with self.assertRaisesRegex(gloom.JobFailed, "exit code -9"):
                jobs.do(self.type, "die", retries=1, wait=PATIENCE)
            self.assertEqual(jobs.do(self.type, "x", wait=PATIENCE), "x")


class Types(DaemonCase):
    """Workers of several types."""

    def test_types_and_patterns(self):
        self.type = ["mail-*", "sms"]
        self.worker(lambda job: job.type, except_=["mail-x*"])
        with self.submitter() as jobs:
            for type in ("mail-", "mail-a", "sms"):
                self.assertEqual(jobs.do(type, wait=PATIENCE), type)
            jobs.submit("mail-xy", id="not served").ack(PATIENCE)
            jobs.do("sms", priority=-1, wait=PATIENCE)
            jobs.cancel("not served", PATIENCE)

    def test_best_of_all_types_first(self):
        order = []
        with self.submitter() as jobs:
            pending = [
                jobs.submit(f"order-{n % 3}", n, priority=priority)
                for n, priority in enumerate((0, 5, 0, 9, 5))
            ]
            pending[-1].ack(PATIENCE)
            self.type = ["order-*"]
            self.worker(lambda job: order.append(job.body))
            concurrent.futures.wait(pending, PATIENCE)
        self.assertEqual(order, [3, 1, 4, 0, 2])


class Groups(DaemonCase):
    """Options of jobs."""

    def test_change(self):
        order = []
        with self.submitter() as jobs:
            first = jobs.submit(self.type, 1)
            second = jobs.submit(self.type, 2, groups=["a", "b"])
            third = jobs.submit(self.type, 3, delay=3600)
            jobs.change(second.id, priority=1, groups=["c"], wait=PATIENCE)
            jobs.change(third.id, delay=0, priority=2, groups=[], wait=PATIENCE)
            with self.assertRaises(gloom.UnknownID):
                jobs.change("nobody's", priority=1, wait=PATIENCE)
            with self.assertRaises(gloom.MissingField):
                jobs.change(first.id, wait=PATIENCE)
            with self.assertRaises(gloom.InvalidValue):
                jobs.change(first.id, groups=["a", "a"], wait=PATIENCE)
            self.worker(lambda job: order.append(job.body))
            concurrent.futures.wait((first, second, third), PATIENCE)
        self.assertEqual(order, [3, 2, 1])

    def test_change_of_a_running_job(self):
        begun, go = threading.Event(), threading.Event()

        def handler(job):
            begun.set()
            go.wait(PATIENCE)

        self.worker(handler)
        with self.submitter() as jobs:
            job = jobs.submit(self.type)
            self.assertTrue(begun.wait(PATIENCE))
            with self.assertRaises(gloom.InvalidState):
                jobs.change(job.id, priority=1, wait=PATIENCE)
            go.set()
            job.result(PATIENCE)

    def test_age(self):
        order = []
        with self.submitter() as jobs:
            pending = [jobs.submit(self.type, 1), jobs.submit(self.type, 2, age=60)]
            pending[-1].ack(PATIENCE)
            self.worker(lambda job: order.append(job.body))
            concurrent.futures.wait(pending, PATIENCE)
        self.assertEqual(order, [2, 1])

    def test_headers(self):
        for settings in ({}, {"processes": True}):
            worker = self.worker(told_headers, headers=True, **settings)
            with self.submitter() as jobs:
                for headers in ({"tenant": [42]}, {}, None):
                    got = jobs.do(self.type, headers=headers, wait=PATIENCE)
                    self.assertEqual(got, headers)
                with self.assertRaises(gloom.InvalidValue):
                    jobs.do(self.type, headers={"k": "x" * 4096}, wait=PATIENCE)
            worker.stop(PATIENCE)

    def test_release(self):
        runs = []

        def handler(job):
            runs.append(time.monotonic())
            if len(runs) < 3:
                raise gloom.Release(0.05)
            return len(runs)

        self.worker(handler)
        with self.submitter() as jobs:
            self.assertEqual(jobs.do(self.type, retries=0, wait=PATIENCE), 3)
        self.assertGreaterEqual(runs[2] - runs[0], 0.1)


class Kept(DaemonCase):
    """Jobs that outlive their connection."""

    def setUp(self):
        super().setUp()
        self.relay = Relay(self.daemon.submit_addr)
        self.addCleanup(self.relay.close)

    @staticmethod
    def pinged(jobs):
        """Whether the connection is open, and everything sent on it has been read."""
        try:
            jobs.ping(PATIENCE)
            return True
        except (gloom.NotConnected, gloom.LostError):
            return False

    def test_lost_connections_are_invisible(self):
        self.worker(lambda job: job.body * 2, concurrency=2, prefetch=20)
        runs = 1000
        with self.submitter(self.relay.addr, window=50) as jobs:
            pending = []
            for n in range(runs):
                job = jobs.submit(self.type, n, keep=60, at_least_once=True)
                pending.append(job)
                if n % 50 == 25:
                    self.relay.cut()
            got = [job.result(PATIENCE) for job in pending]
        self.assertEqual(got, [2 * n for n in range(runs)])
        self.assertGreater(self.relay.cuts, 10)

    def test_delayed_queued_running_and_ended(self):
        begun, go = threading.Event(), threading.Event()

        def handler(job):
            if job.body == "running":
                job.progress("before")
                begun.set()
                go.wait(PATIENCE)
                job.progress("after")
            return job.body

        told = []
        with self.submitter(self.relay.addr) as jobs:
            pending = [
                jobs.submit(self.type, body, keep=60, delay=delay, on_progress=progress)
                for body, delay, progress in (
                    ("running", 0, told.append),
                    ("queued", 0, None),
                    ("delayed", 0.1, None),
                )
            ]
            pending[-1].ack(PATIENCE)
            self.worker(handler)
            self.assertTrue(begun.wait(PATIENCE))
            self.relay.cut()
            eventually(lambda: self.relay.accepted == 2 and self.pinged(jobs))
            go.set()
            got = [job.result(PATIENCE) for job in pending]
            self.assertEqual(got, ["running", "queued", "delayed"])
        self.assertEqual(told[-1], "after")

    def test_attach_from_elsewhere(self):
        with self.submitter() as one, self.submitter() as other:
            mine = one.submit(self.type, 1, keep=60)
            mine.ack(PATIENCE)
            theirs = other.attach(mine.id)
            theirs.ack(PATIENCE)
            self.assertIsInstance(mine.exception(PATIENCE), gloom.TakenOver)
            self.worker(echo)
            self.assertEqual(theirs.result(PATIENCE), 1)
            gone = other.attach(mine.id)
            self.assertIsInstance(gone.exception(PATIENCE), gloom.UnknownID)

    def test_outcome_waits_for_who_comes_later(self):
        with self.submitter() as one:
            id = one.submit(self.type, 1, keep=60).id
            one.ping(PATIENCE)
        self.worker(echo)
        with self.submitter() as other:
            self.assertEqual(other.attach(id).result(PATIENCE), 1)

    def test_asyncio(self):
        async def run():
            async with gloom.AsyncSubmitter(self.relay.addr, backoff=FAST) as jobs:
                job = await jobs.submit(self.type, 1, keep=60)
                await job.ack()
                await asyncio.to_thread(self.relay.cut)
                await asyncio.to_thread(eventually, lambda: self.relay.accepted == 2)
                await jobs.connect(PATIENCE)
                await jobs.change(job.id, priority=5)
                await asyncio.to_thread(self.worker, echo)
                return await asyncio.wait_for(job, PATIENCE)

        self.assertEqual(asyncio.run(run()), 1)


def told_headers(job):
    return job.headers


def in_process(job):
    if job.body == "pid":
        return os.getpid()
    if job.body == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return job.body


class Stops(DaemonCase):
    def test_nothing_is_lost_when_workers_come_and_go(self):
        runs = []

        def handler(job):
            runs.append(job.id)
            return job.body

        with self.submitter(window=20) as jobs:
            pending = []
            for n in range(8):
                worker = gloom.Worker(
                    self.type,
                    handler,
                    self.daemon.worker_addr,
                    concurrency=2,
                    prefetch=8 * (n % 2),
                )
                worker.start(PATIENCE)
                pending += [jobs.submit(self.type, i, retries=0) for i in range(20)]
                worker.stop(PATIENCE)
            self.worker(handler)
            for n, job in enumerate(pending):
                self.assertEqual(job.result(PATIENCE), n % 20)
        self.assertEqual(len(runs), len(pending))

    def test_job_of_a_killed_worker_is_run_again(self):
        child = subprocess.Popen(
            [
                sys.executable,
                str(HERE / "run_worker.py"),
                self.daemon.worker_addr,
                self.type,
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        with self.submitter() as jobs:
            job = jobs.submit(self.type, 7)
            self.assertEqual(child.stdout.readline(), "begun\n")
            child.kill()
            self.worker(echo)
            self.assertEqual(job.result(PATIENCE), 7)


class Brokers(unittest.TestCase):
    """Daemons that stop and restart."""

    def setUp(self):
        self.notices = []

    def start(self, *flags):
        daemon = Daemon(*flags)
        self.addCleanup(daemon.stop)
        return daemon

    def events(self, event):
        return [notice for notice in self.notices if notice.event is event]

    def test_killed_and_restarted(self):
        daemon = self.start()
        with gloom.Worker(
            "echo",
            echo,
            daemon.worker_addr,
            backoff=FAST,
            notify=self.notices.append,
        ), gloom.Submitter(
            daemon.submit_addr, backoff=FAST, notify=lambda _: None
        ) as jobs:
            self.assertEqual(jobs.do("echo", 1, wait=PATIENCE), 1)
            pending = [jobs.submit("nobody", n) for n in range(10)]
            for job in pending:
                job.ack(PATIENCE)
            daemon.kill()
            for job in pending:
                err = job.exception(PATIENCE)
                self.assertIsInstance(err, gloom.LostError)
                self.assertTrue(err.acked)
            self.start(
                "--submit-addr",
                daemon.submit_addr,
                "--worker-addr",
                daemon.worker_addr,
            )
            self.assertEqual(jobs.do("echo", 2, wait=PATIENCE), 2)

    def test_draining(self):
        first, second = self.start(), self.start()
        begun, go = threading.Event(), threading.Event()

        def handler(job):
            begun.set()
            go.wait(PATIENCE)
            return job.body

        addrs = (first.worker_addr, second.worker_addr)
        with gloom.Worker(
            "echo", handler, *addrs, backoff=FAST, notify=self.notices.append
        ), gloom.Submitter(
            first.submit_addr,
            second.submit_addr,
            backoff=FAST,
            notify=lambda _: None,
        ) as jobs:
            eventually(lambda: len(self.events(Event.JOINED)) == 2)
            running = jobs.submit("echo", 1)
            self.assertTrue(begun.wait(PATIENCE))
            first.process.terminate()
            refused = None
            while refused is None:
                job = jobs.submit("nobody")
                try:
                    job.ack(PATIENCE)
                    jobs.cancel(job.id, PATIENCE)  # or the drain waits for it
                except gloom.Draining as err:
                    refused = err
            self.assertIsInstance(refused, gloom.RefusedError)
            go.set()
            self.assertEqual(running.result(PATIENCE), 1)
            eventually(lambda: self.moved(jobs))
            self.assertEqual(jobs.do("echo", 2, wait=PATIENCE), 2)
            self.assertEqual(first.process.wait(PATIENCE), 0)

    @staticmethod
    def moved(jobs):
        try:
            jobs.do("echo", wait=PATIENCE)
            return True
        except (gloom.Draining, gloom.LostError):
            return False

    def test_fail_over(self):
        first, second = self.start(), self.start()
        with gloom.Worker(
            "echo",
            echo,
            first.worker_addr,
            second.worker_addr,
            backoff=FAST,
            notify=self.notices.append,
        ), gloom.Submitter(
            first.submit_addr,
            second.submit_addr,
            backoff=FAST,
            notify=lambda _: None,
        ) as jobs:
            eventually(lambda: len(self.events(Event.JOINED)) == 2)
            self.assertEqual(jobs.do("echo", 1, wait=PATIENCE), 1)
            first.kill()
            eventually(lambda: self.moved(jobs))
            self.assertEqual(jobs.do("echo", 2, wait=PATIENCE), 2)

    def test_unix_sockets(self):
        flags = []
        for name in ("submit", "worker"):
            path = scratch() / f"{name}.sock"
            flags += [f"--{name}-addr", f"unix:{path}"]
        self.start(*flags)
        with gloom.Worker("echo", echo, flags[3]):
            with gloom.Submitter(flags[1]) as jobs:
                self.assertEqual(jobs.do("echo", 1, wait=PATIENCE), 1)

    def test_sockets_of_this_machine(self):
        folder = scratch() / "gloom"
        folder.mkdir()
        flags = []
        for name in ("submit", "worker"):
            flags += [f"--{name}-addr", f"unix:{folder}/{name}.sock"]
        self.start(*flags)
        with mock.patch.dict(
            os.environ, XDG_RUNTIME_DIR=str(scratch())
        ), mock.patch("os.geteuid", lambda: 1000):
            with gloom.Worker("echo", echo), gloom.Submitter() as jobs:
                self.assertEqual(jobs.do("echo", 1, wait=PATIENCE), 1)


class Guarded(unittest.TestCase):
    """Tokens and TLS."""

    @classmethod
    def setUpClass(cls):
        tokens = scratch() / "tokens"
        tokens.write_text(
            "s3cret submit,work\n"
            "onlywork work echo*\n"
            "onlysubmit submit echo*,other # a comment\n"
        )
        cls.cert, cls.key = certificate()
        tls = ("--tls-cert", str(cls.cert), "--tls-key", str(cls.key))
        cls.daemon = Daemon("--token-file", str(tokens), *tls)
        cls.addClassCleanup(cls.daemon.stop)
        cls.trust = trusting(cls.cert)

    def settings(self, token, **more):
        return {
            "token": token,
            "tls": self.trust,
            "backoff": FAST,
            "notify": lambda _: None,
            **more,
        }

    def test_let_in(self):
        worker = gloom.Worker(
            "echo", echo, self.daemon.worker_addr, **self.settings("onlywork")
        )
        submitter = gloom.Submitter(
            self.daemon.submit_addr,
            **self.settings("onlysubmit", server_hostname="localhost"),
        )
        body = "x" * 3_000_000
        with worker, submitter as jobs:
            self.assertEqual(jobs.do("echo", body, wait=PATIENCE), body)
            pending = [jobs.submit("echo", n) for n in range(500)]
            got = [job.result(PATIENCE) for job in pending]
            self.assertEqual(got, list(range(500)))

    def test_forbidden(self):
        with gloom.Submitter(
            self.daemon.submit_addr, **self.settings("onlysubmit")
        ) as jobs:
            with self.assertRaises(gloom.Forbidden):
                jobs.submit("secret").result(PATIENCE)
            jobs.submit("other").ack(PATIENCE)
        for token, type in (("onlysubmit", "echo"), ("onlywork", "other")):
            worker = gloom.Worker(
                type, echo, self.daemon.worker_addr, **self.settings(token)
            )
            with self.assertRaises(gloom.Forbidden):
                worker.start(PATIENCE)

    def test_unauthorized(self):
        jobs = gloom.Submitter(self.daemon.submit_addr, **self.settings("wrong"))
        self.addCleanup(jobs.close)
        with self.assertRaises(gloom.Unauthorized):
            jobs.connect(PATIENCE)
        with self.assertRaises(gloom.Unauthorized):
            jobs.submit("echo", wait=PATIENCE)

    def test_no_token(self):
        jobs = gloom.Submitter(self.daemon.submit_addr, **self.settings(None))
        self.addCleanup(jobs.close)
        with self.assertRaises((gloom.LostError, gloom.Unauthorized)) as caught:
            jobs.do("echo", wait=PATIENCE)
        if isinstance(caught.exception, gloom.LostError):
            self.assertIsInstance(caught.exception.cause, gloom.Unauthorized)

    def test_strange_certificate(self):
        settings = self.settings("s3cret", tls=ssl.create_default_context())
        with self.assertRaises(gloom.NotConnected) as caught:
            with gloom.Submitter(self.daemon.submit_addr, **settings):
                self.fail("connected")
        self.assertIsInstance(
            caught.exception.__cause__, ssl.SSLCertVerificationError
        )
        settings = self.settings("s3cret", server_hostname="elsewhere")
        with self.assertRaises(gloom.NotConnected):
            with gloom.Submitter(self.daemon.submit_addr, **settings):
                self.fail("connected")

    def test_tls_by_address(self):
        with mock.patch.dict(os.environ, SSL_CERT_FILE=str(self.cert)):
            with gloom.Submitter(
                f"tls://{self.daemon.submit_addr}", token="s3cret"
            ) as jobs:
                jobs.ping(PATIENCE)

    def test_asyncio(self):
        async def handler(job):
            return job.body

        async def run():
            worker = gloom.AsyncWorker(
                "echo2",
                handler,
                self.daemon.worker_addr,
                prefetch=8,
                **self.settings("s3cret"),
            )
            jobs = gloom.AsyncSubmitter(
                self.daemon.submit_addr, **self.settings("s3cret")
            )
            async with worker, jobs:
                return await jobs.do("echo2", 5, wait=PATIENCE)

        self.assertEqual(asyncio.run(run()), 5)


class Async(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.stop)

    def worker(self, type, handler, **settings):
        return gloom.AsyncWorker(
            type, handler, self.daemon.worker_addr, backoff=FAST, **settings
        )

    def submitter(self, **settings):
        return gloom.AsyncSubmitter(
            self.daemon.submit_addr, backoff=FAST, **settings
        )

    async def test_many(self):
        async def handler(job):
            await asyncio.sleep(0)
            return job.body * 2

        for settings in ({"concurrency": 3}, {"prefetch": 32}):
            type = "many" + str(len(settings))
            async with self.worker(type, handler, **settings):
                async with self.submitter(window=64) as jobs:
                    pending = [
                        await jobs.submit(type, n, ack=n % 2 > 0) for n in range(500)
                    ]
                    for n, job in enumerate(pending):
                        got = await asyncio.wait_for(job, PATIENCE)
                        self.assertEqual(got, n * 2)

    async def test_raw(self):
        async def handler(job):
            self.assertIsInstance(job.body, RawJSON)
            return job.body

        async with self.worker("raw", handler, raw=True):
            async with self.submitter(raw=True) as jobs:
                for body in BODIES:
                    got = await jobs.do("raw", RawJSON(body), wait=PATIENCE)
                    self.assertEqual(got.data, body)

    async def test_progress_cancel_and_failures(self):
        begun = asyncio.Event()
        ended = []

        async def handler(job):
            if job.body == "hang":
                begun.set()
                try:
                    await asyncio.sleep(PATIENCE)
                finally:
                    ended.append(job.cause)
            if job.body == "fail":
                raise Fatal("as asked")
            for n in range(3):
                await job.progress(n)
            return "done"

        told = []
        async with self.worker("mixed", handler, concurrency=2, prefetch=4):
            async with self.submitter() as jobs:
                got = await jobs.do("mixed", on_progress=told.append, wait=PATIENCE)
                self.assertEqual((got, told), ("done", [0, 1, 2]))
                with self.assertRaisesRegex(gloom.JobFailed, "as asked"):
                    await jobs.do("mixed", "fail", wait=PATIENCE)
                job = await jobs.submit("mixed", "hang")
                await asyncio.wait_for(begun.wait(), PATIENCE)
                await jobs.cancel(job.id)
                with self.assertRaises(gloom.Cancelled):
                    await asyncio.wait_for(job, PATIENCE)
                self.assertEqual(await jobs.do("mixed", wait=PATIENCE), "done")
                self.assertIsInstance(ended[0], gloom.Cancelled)
                await jobs.ping()

    async def test_stop_answers_what_runs(self):
        begun, go = asyncio.Event(), asyncio.Event()

        async def handler(job):
            begun.set()
            await go.wait()
            return job.body

        worker = self.worker("stop", handler, prefetch=4)
        await worker.start(PATIENCE)
        async with self.submitter() as jobs:
            pending = [await jobs.submit("stop", n, retries=0) for n in range(4)]
            await asyncio.wait_for(begun.wait(), PATIENCE)
            stopping = asyncio.ensure_future(worker.stop())
            go.set()
            await stopping
            async with self.worker("stop", handler):
                got = [await asyncio.wait_for(job, PATIENCE) for job in pending]
            self.assertEqual(got, [0, 1, 2, 3])


if __name__ == "__main__":
    unittest.main()
