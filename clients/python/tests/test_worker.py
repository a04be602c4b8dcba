"""The workers, against a scripted broker."""

import asyncio
import concurrent.futures
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

from support import HERE, PATIENCE, FakeBroker, closed_port, eventually

import gloom
from gloom import Event, Fatal, RetryAfter

FAST = (0.001, 0.01)


class Gate:
    """A handler that waits for the test, and records which jobs are in it."""

    def __init__(self):
        self.inside = []
        self.jobs = {}
        self._doors = {}

    def __call__(self, job):
        door = self._doors.setdefault(job.id, threading.Event())
        self.jobs[job.id] = job
        self.inside.append(job.id)
        if not door.wait(PATIENCE):
            raise TimeoutError("nobody opened")
        return job.body

    def open(self, id):
        self._doors.setdefault(id, threading.Event()).set()

    def await_inside(self, *ids):
        eventually(lambda: set(ids) <= set(self.inside), f"{ids} begun")


class WorkerCase(unittest.TestCase):
    def setUp(self):
        self.broker = FakeBroker()
        self.addCleanup(self.broker.__exit__)
        self.notices = []

    def worker(self, handler, *addrs, type="echo", **settings):
        """A worker that has been started, and its first connection."""
        settings.setdefault("backoff", FAST)
        settings.setdefault("notify", self.notices.append)
        worker = gloom.Worker(
            type, handler, *(addrs or (self.broker.addr,)), **settings
        )
        starting = self.aside(worker.start, PATIENCE)
        peer = self.broker.accept()
        if "token" in settings or "heartbeat" in settings:
            self.hello = peer.expect("hello")
            peer.ok()
        self.join = peer.expect("join")
        peer.ok()
        self.addCleanup(self.stop_at_once, worker)
        starting.result(PATIENCE)
        return worker, peer

    @staticmethod
    def stop_at_once(worker):
        try:
            worker.stop(0)
        except concurrent.futures.TimeoutError:
            pass

    def aside(self, function, *args):
        """Call a function in another thread; returns a future."""
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        return pool.submit(function, *args)

    @staticmethod
    def job(peer, id, body=None):
        peer.send({"action": "job", "id": id, "type": "echo", "body": body})

    def run_one(self, handler, body={"n": 1}, **settings):
        """Give the worker one job, and return its answer."""
        worker, peer = self.worker(handler, **settings)
        self.job(peer, "a", body)
        answer = peer.recv()
        peer.ok()
        return answer


class Answers(WorkerCase):
    def test_respond(self):
        answer = self.run_one(lambda job: [job.id, job.type, job.body])
        self.assertEqual(
            answer, {"action": "respond", "body": ["a", "echo", {"n": 1}]}
        )
        self.assertEqual(self.join, {"action": "join", "type": "echo", "cancel": True})

    def test_raw(self):
        body = b'{ "z":1E400, "a" : "\\u00e9" }'
        worker, peer = self.worker(lambda job: job.body, raw=True)
        peer.send(b'{"action":"job","id":"a","type":"echo","body":%s}' % body)
        want = b'{"action":"respond","body":%s}' % body
        self.assertEqual(peer._exactly(4 + len(want))[4:], want)

    def test_long_job_without_hello(self):
        """The worker does not know the broker's limit, which may be above its default."""
        answer = self.run_one(lambda job: len(job.body), body="x" * 17 * 2**20)
        self.assertEqual(answer["body"], 17 * 2**20)

    def test_errors(self):
        def fail(error):
            def handler(job):
                raise error

            return self.run_one(handler)

        for error, answer in (
            (ValueError("bad"), {"reason": "ValueError: bad"}),
            (KeyError("k"), {"reason": "KeyError: 'k'"}),
            (ValueError(), {"reason": "ValueError"}),
            (Fatal("never"), {"reason": "never", "retry": False}),
            (Fatal(), {"reason": "fatal error", "retry": False}),
            (RetryAfter(1.5, "busy"), {"reason": "busy", "delay_ms": 1500}),
            (RetryAfter(0), {"reason": "failed, to be retried later", "delay_ms": 0}),
            (SystemExit(3), {"reason": "SystemExit: 3"}),
            (ValueError("\udc80"), {"reason": "ValueError: \\udc80"}),
        ):
            with self.subTest(error):
                self.assertEqual(fail(error), {"action": "fail", **answer})
        answer = fail(ValueError("é" * 5000))
        self.assertLess(len(answer["reason"].encode()), 4110)

    def test_errors_that_were_not_meant_are_logged(self):
        def divide(job):
            return 1 / 0

        with self.assertLogs("gloom", "ERROR") as log:
            self.run_one(divide)
            self.run_one(in_process, processes=True, body="divide")
        for text in log.output:
            self.assertIn("job 'a' of type 'echo' failed", text)
            self.assertIn("in divide", text)
            self.assertIn("ZeroDivisionError: division by zero", text)
        self.assertEqual(len(log.output), 2)

    def test_errors_that_were_meant_are_not_logged(self):
        def raises(error):
            def handler(job):
                raise error

            return handler

        def cancelled(job):
            job.wait(PATIENCE)
            raise job.cause

        with self.assertLogs("gloom", "ERROR") as log:
            self.run_one(raises(Fatal("never")))
            self.run_one(raises(RetryAfter(1)))
            worker, peer = self.worker(cancelled)
            self.job(peer, "a")
            peer.send({"action": "cancel", "id": "a"})
            peer.expect("fail")
            logging.getLogger("gloom").error("the only one")
        self.assertEqual(len(log.output), 1)

    def test_what_json_cannot_say(self):
        answer = self.run_one(lambda job: object())
        self.assertEqual((answer["action"], answer["retry"]), ("fail", False))
        self.assertIn("encode answer", answer["reason"])

    def test_too_large(self):
        answer = self.run_one(lambda job: "x" * 3000, max_frame=2000)
        self.assertEqual((answer["action"], answer["retry"]), ("fail", False))
        self.assertIn("at most 2000", answer["reason"])

    def test_release(self):
        def handler(job):
            raise gloom.Release(1.5)

        answer = self.run_one(handler)
        self.assertEqual(answer, {"action": "release", "delay_ms": 1500})

        def at_once(job):
            raise gloom.Release

        answer = self.run_one(at_once, prefetch=2)
        self.assertEqual(answer, {"action": "release", "id": "a"})

    def test_headers(self):
        for settings in ({}, {"processes": True}):
            worker, peer = self.worker(told_headers, headers=True, **settings)
            self.assertIs(self.join["headers"], True)
            for headers in {"a": [1]}, {}:
                job = {"action": "job", "id": "a", "type": "echo", "body": 1}
                peer.send({**job, "headers": headers})
                self.assertEqual(peer.expect("respond")["body"], headers)
                peer.ok()
            self.job(peer, "a")
            self.assertIsNone(peer.expect("respond")["body"])
            peer.ok()

    def test_named(self):
        worker, peer = self.worker(lambda job: job.body, prefetch=2)
        self.assertEqual(self.join["prefetch"], 2)
        self.job(peer, "a", 1)
        self.assertEqual(peer.recv(), {"action": "respond", "id": "a", "body": 1})

    def test_refused_answer_becomes_a_fail(self):
        worker, peer = self.worker(lambda job: job.body)
        self.job(peer, "a", 1)
        peer.expect("respond")
        peer.refuse("invalid_value")
        answer = peer.expect("fail")
        self.assertEqual(answer["retry"], False)
        self.assertIn("because of invalid_value", answer["reason"])
        peer.ok()
        self.job(peer, "b", 2)
        peer.expect("respond")
        peer.refuse("invalid_state")  # too late: nothing to make good
        self.job(peer, "c", 3)
        self.assertEqual(peer.expect("respond")["body"], 3)


class Progress(WorkerCase):
    def test_frames(self):
        def handler(job):
            for n in range(3):
                job.progress({"n": n})
            return "done"

        worker, peer = self.worker(handler)
        self.job(peer, "a")
        for n in range(3):
            self.assertEqual(peer.recv(), {"action": "progress", "body": {"n": n}})
        self.assertEqual(peer.recv(), {"action": "respond", "body": "done"})
        for _ in range(4):
            peer.ok()
        self.job(peer, "b")
        peer.expect("progress")

    def test_room(self):
        begun = []

        def handler(job):
            for n in range(100):
                begun.append(n)
                job.progress(n)

        worker, peer = self.worker(handler)
        self.job(peer, "a")
        for n in range(64):
            self.assertEqual(peer.expect("progress")["body"], n)
        eventually(lambda: len(begun) == 65)
        peer.refuse("invalid_state")
        self.assertEqual(peer.expect("progress")["body"], 64)
        eventually(lambda: len(begun) == 66)
        for _ in range(64):
            peer.ok()
        for n in range(65, 100):
            self.assertEqual(peer.expect("progress")["body"], n)
        for _ in range(35):
            peer.ok()
        peer.expect("respond")

    def test_misuse(self):
        def handler(job):
            with self.assertRaises(TypeError):
                job.progress(object())
            with self.assertRaises(gloom.SizeError):
                job.progress("x" * 3000)
            return "fine"

        self.assertEqual(self.run_one(handler, max_frame=2000)["body"], "fine")

    def test_when_nobody_waits(self):
        seen = concurrent.futures.Future()

        def handler(job):
            job.wait(PATIENCE)
            try:
                job.progress(1)
            except gloom.GloomError as err:
                seen.set_result((job.unwanted, job.cause, err))
                raise

        worker, peer = self.worker(handler)
        self.job(peer, "a")
        peer.send({"action": "cancel", "id": "a"})
        unwanted, cause, err = seen.result(PATIENCE)
        self.assertTrue(unwanted)
        for error in cause, err:
            self.assertIsInstance(error, gloom.Cancelled)
        peer.expect("fail")


class Types(WorkerCase):
    def test_join(self):
        for type, how, said in (
            (["a", "b"], {}, {"types": ["a", "b"]}),
            (["mail-*"], {}, {"types": ["mail-*"]}),
            (("*",), {"except_": ["x*"]}, {"types": ["*"], "except": ["x*"]}),
        ):
            with self.subTest(type):
                worker, peer = self.worker(lambda job: job.type, type=type, **how)
                self.assertEqual(self.join, {"action": "join", "cancel": True, **said})
                self.job(peer, "a")
                self.assertEqual(peer.expect("respond")["body"], "echo")
                peer.ok()

    def test_refused(self):
        for kind in (gloom.Worker, gloom.AsyncWorker):
            for type, settings in (
                ([], {}),
                ([""], {}),
                (["a"], {"except_": [""]}),
                ("a", {"except_": ["b"]}),
            ):
                with self.subTest(type), self.assertRaises(ValueError):
                    kind(type, print, **settings)
            for type in (["a", 5], None, {"a": 1}, b"a"):
                with self.subTest(type), self.assertRaises(TypeError):
                    kind(type, print)
            for names in ("mail", b"mail", 5):  # a str is not its letters
                with self.subTest(names), self.assertRaises(TypeError):
                    kind(["m*"], print, except_=names)


class Pools(WorkerCase):
    def test_socket_per_handler(self):
        gate = Gate()
        worker, first = self.worker(gate, concurrency=2)
        second = self.broker.accept()
        second.expect("join")
        second.ok()
        self.job(first, "a", 1)
        self.job(second, "b", 2)
        gate.await_inside("a", "b")
        gate.open("b")
        self.assertEqual(second.expect("respond")["body"], 2)
        gate.open("a")
        self.assertEqual(first.expect("respond")["body"], 1)

    def test_prefetch(self):
        gate = Gate()
        worker, peer = self.worker(gate, concurrency=2, prefetch=4)
        for id in "abcd":
            self.job(peer, id, id)
        gate.await_inside("a", "b")
        self.assertEqual(sorted(gate.inside), ["a", "b"])
        gate.open("b")
        self.assertEqual(peer.expect("respond")["id"], "b")
        gate.await_inside("c")
        for id in "acd":
            gate.open(id)
        ids = {peer.expect("respond")["id"] for _ in "acd"}
        self.assertEqual(ids, set("acd"))

    def test_cancelled_while_it_waits(self):
        gate = Gate()
        worker, peer = self.worker(gate, concurrency=1, prefetch=2)
        self.job(peer, "a")
        self.job(peer, "b")
        peer.send({"action": "cancel", "id": "b"}, {"action": "cancel", "id": "x"})
        peer.send({"action": "ping"})
        peer.expect("pong")  # so it has seen what came before
        gate.await_inside("a")
        gate.open("a")
        self.assertEqual(peer.expect("respond")["id"], "a")
        self.assertEqual(
            peer.recv(), {"action": "fail", "id": "b", "reason": "cancelled"}
        )
        self.assertEqual(gate.inside, ["a"])

    def test_all_brokers_are_joined(self):
        with FakeBroker() as other:
            worker, first = self.worker(
                lambda job: job.body, self.broker.addr, other.addr, closed_port()
            )
            second = other.accept()
            second.expect("join")
            second.ok()
            for number, peer in enumerate((first, second)):
                self.job(peer, "a", number)
                self.assertEqual(peer.expect("respond")["body"], number)

    def test_more_jobs_than_asked_for(self):
        gate = Gate()
        worker, peer = self.worker(gate)
        self.job(peer, "a")
        self.job(peer, "b")
        self.assertTrue(peer.at_end())
        gate.open("a")
        eventually(lambda: self.notices[-1].event is Event.LOST)
        self.assertIsInstance(self.notices[-1].error, gloom.ProtocolError)

    def test_pings_during_work(self):
        gate = Gate()
        worker, peer = self.worker(gate, heartbeat=60)
        self.assertEqual(self.hello["heartbeat_ms"], 60000)
        self.job(peer, "a")
        gate.await_inside("a")
        peer.send({"action": "ping"})
        peer.expect("pong")
        gate.open("a")
        peer.expect("respond")


class Losses(WorkerCase):
    def test_rejoins(self):
        worker, peer = self.worker(lambda job: job.body)
        for n in range(3):
            peer.reset()
            peer = self.broker.accept()
            peer.expect("join")
            peer.ok()
            self.job(peer, "a", n)
            self.assertEqual(peer.expect("respond")["body"], n)

    def test_handler_is_told_and_its_place_is_taken(self):
        gate = Gate()
        worker, peer = self.worker(gate)
        self.job(peer, "a")
        gate.await_inside("a")
        peer.reset()
        eventually(lambda: gate.jobs["a"].unwanted)
        self.assertIsInstance(gate.jobs["a"].cause, gloom.LostError)
        self.assertEqual([n.event for n in self.notices], [Event.JOINED])
        gate.open("a")
        peer = self.broker.accept()
        peer.expect("join")
        peer.ok()
        self.job(peer, "b", 2)
        gate.open("b")
        self.assertEqual(peer.expect("respond")["body"], 2)

    def test_given_up(self):
        worker = gloom.Worker(
            "echo",
            print,
            self.broker.addr,
            concurrency=2,
            notify=self.notices.append,
        )
        starting = self.aside(worker.start)
        for _ in range(2):
            peer = self.broker.accept()
            peer.expect("join")
            peer.refuse("forbidden")
        with self.assertRaises(gloom.Forbidden):
            starting.result(PATIENCE)
        self.assertTrue(worker.done)
        self.assertEqual([n.event for n in self.notices], [Event.GIVEN_UP] * 2)

    def test_not_given_up(self):
        worker = gloom.Worker("echo", lambda job: 1, self.broker.addr, backoff=FAST)
        worker._core._options.notify = self.notices.append
        starting = self.aside(worker.start)
        self.addCleanup(self.stop_at_once, worker)
        peer = self.broker.accept()
        peer.expect("join")
        peer.refuse("overloaded")
        peer.close()
        peer = self.broker.accept()
        peer.expect("join")
        peer.ok()
        starting.result(PATIENCE)
        self.assertEqual(self.notices[0].event, Event.FAILED)

    def test_no_answer_to_join(self):
        worker = gloom.Worker(
            "echo",
            print,
            self.broker.addr,
            dial_timeout=0.05,
            backoff=FAST,
            notify=self.notices.append,
        )
        starting = self.aside(worker.start)
        self.addCleanup(self.stop_at_once, worker)
        # On a slow machine, earlier attempts may time out before the connection is
        # made.
        eventually(
            lambda: any("no answer to join" in str(n.error) for n in self.notices)
        )
        worker.stop()
        with self.assertRaises(gloom.ClosedError):
            starting.result(PATIENCE)

    def test_job_before_the_ok_of_join(self):
        worker = gloom.Worker(
            "echo", print, self.broker.addr, backoff=FAST, notify=self.notices.append
        )
        starting = self.aside(worker.start)
        self.addCleanup(self.stop_at_once, worker)
        peer = self.broker.accept()
        peer.expect("join")
        self.job(peer, "a")
        self.assertTrue(peer.at_end())
        eventually(lambda: self.notices)
        self.assertIsInstance(self.notices[0].error, gloom.ProtocolError)
        worker.stop()
        with self.assertRaises(gloom.ClosedError):
            starting.result(PATIENCE)

    def test_unreachable(self):
        worker = gloom.Worker(
            "echo", print, closed_port(), backoff=FAST, notify=self.notices.append
        )
        with self.assertRaisesRegex(gloom.NotConnected, "within 0.05 s"):
            worker.start(0.05)


class Stops(WorkerCase):
    def test_idle(self):
        worker, peer = self.worker(print)
        stopped = self.aside(worker.stop)
        peer.expect("leave")
        self.assertFalse(stopped.done())
        peer.ok()
        self.assertTrue(peer.at_end())
        stopped.result(PATIENCE)
        self.assertTrue(worker.done)
        self.assertIsNone(worker.error)
        worker.stop()
        with self.assertRaises(RuntimeError):
            worker.start()

    def leave_with_jobs(self):
        """A worker that stops: a runs, b has not begun, and the broker sends c after
        the leave."""
        gate = Gate()
        worker, peer = self.worker(gate, concurrency=1, prefetch=3)
        for id in "ab":
            self.job(peer, id)
        gate.await_inside("a")
        stopped = self.aside(worker.stop)
        peer.expect("leave")
        self.job(peer, "c")
        for id in "bc":
            self.assertEqual(peer.recv(), {"action": "release", "id": id})
        peer.ok()
        return gate, peer, stopped

    def test_answers_what_runs_and_releases_the_rest(self):
        gate, peer, stopped = self.leave_with_jobs()
        for _ in "bc":
            peer.ok()
        gate.open("a")
        self.assertEqual(peer.expect("respond")["id"], "a")
        self.assertFalse(stopped.done())
        peer.ok()
        self.assertTrue(peer.at_end())
        stopped.result(PATIENCE)
        self.assertEqual(gate.inside, ["a"])

    def test_answers_all_that_is_out_where_release_is_refused(self):
        for code in "unknown_action", "forbidden":
            gate, peer, stopped = self.leave_with_jobs()
            for _ in "bc":
                peer.refuse(code)
            for id in "abc":
                gate.open(id)
                self.assertEqual(peer.expect("respond")["id"], id)
                self.assertFalse(stopped.done())
                peer.ok()
            self.assertTrue(peer.at_end())
            stopped.result(PATIENCE)

    def test_job_after_the_ok_of_leave(self):
        gate = Gate()
        worker, peer = self.worker(gate, prefetch=2)
        self.job(peer, "a")
        gate.await_inside("a")
        stopped = self.aside(worker.stop)
        peer.expect("leave")
        peer.ok()
        self.job(peer, "b")
        self.assertTrue(peer.at_end())
        gate.open("a")
        stopped.result(PATIENCE)

    def test_out_of_time(self):
        gate = Gate()
        worker, peer = self.worker(gate)
        self.job(peer, "a")
        gate.await_inside("a")
        late = "worker stopped after 0.01 s with 1 job running"
        with self.assertRaisesRegex(concurrent.futures.TimeoutError, late):
            worker.stop(0.01)
        self.assertIsInstance(gate.jobs["a"].cause, gloom.ClosedError)
        self.assertEqual(peer.recv()["action"], "leave")
        self.assertTrue(peer.at_end())
        gate.open("a")

    def test_while_connecting(self):
        worker = gloom.Worker(
            "echo", print, closed_port(), backoff=(60, 60), notify=self.notices.append
        )
        starting = self.aside(worker.start)
        eventually(lambda: self.notices)
        worker.stop()
        with self.assertRaises(gloom.ClosedError):
            starting.result(PATIENCE)

    def test_leave_from_a_handler_ends_run(self):
        worker = gloom.Worker(
            "echo", lambda job: worker.leave(), self.broker.addr, backoff=FAST
        )
        running = self.aside(worker.run)
        peer = self.broker.accept()
        peer.expect("join")
        peer.ok()
        self.job(peer, "a")
        got = {peer.recv()["action"] for _ in range(2)}
        self.assertEqual(got, {"respond", "leave"})
        peer.ok()
        peer.ok()
        running.result(PATIENCE)

    def test_run_raises_the_refusal(self):
        worker = gloom.Worker(
            "echo", print, self.broker.addr, notify=self.notices.append
        )
        running = self.aside(worker.run)
        peer = self.broker.accept()
        peer.expect("join")
        peer.refuse("forbidden")
        with self.assertRaises(gloom.Forbidden):
            running.result(PATIENCE)

    def test_signals(self):
        for kind, second in ((signal.SIGTERM, False), (signal.SIGINT, True)):
            with self.subTest(kind):
                child = subprocess.Popen(
                    [sys.executable, str(HERE / "run_worker.py"), self.broker.addr],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                self.addCleanup(child.kill)
                peer = self.broker.accept()
                peer.expect("join")
                peer.ok()
                self.job(peer, "a")
                self.assertEqual(child.stdout.readline(), "begun\n")
                child.send_signal(kind)
                peer.expect("leave")
                peer.ok()
                if second:
                    child.send_signal(kind)
                    self.assertTrue(peer.at_end())
                else:
                    peer.send({"action": "cancel", "id": "a"})
                    peer.expect("fail")
                    peer.ok()
                out, err = child.communicate(timeout=PATIENCE)
                self.assertEqual("TimeoutError" in err, second, err)
                why = "worker stopped at the second signal with 1 job running"
                self.assertEqual(why in err, second, err)
                self.assertEqual(child.returncode, 1 if second else 0, err)

    def test_a_signal_that_another_thread_gets(self):
        for kind in [], ["async"]:
            with self.subTest(kind):
                child = subprocess.Popen(
                    [sys.executable, str(HERE / "run_worker.py"), self.broker.addr, *kind],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                self.addCleanup(child.kill)
                peer = self.broker.accept()
                peer.expect("join")
                peer.ok()
                self.job(peer, "a", "signal this thread")
                if kind:
                    peer.expect("respond")
                    peer.ok()
                began = time.monotonic()
                peer.expect("leave")
                self.assertLess(time.monotonic() - began, PATIENCE / 2)
                peer.ok()
                if not kind:
                    peer.send({"action": "cancel", "id": "a"})
                    peer.expect("fail")
                    peer.ok()
                _, err = child.communicate(timeout=PATIENCE)
                self.assertEqual(child.returncode, 0, err)

    def test_stop_without_a_thread(self):
        worker = gloom.Worker("echo", lambda job: job.body, self.broker.addr)
        full = RuntimeError("can't start new thread")
        with mock.patch.object(worker._thread._thread, "start", side_effect=full):
            with self.assertRaises(RuntimeError):
                worker.start(PATIENCE)
        stopping = threading.Thread(target=worker.stop, daemon=True)
        stopping.start()
        stopping.join(PATIENCE)
        self.assertFalse(stopping.is_alive())


class Settings(unittest.TestCase):
    def test_refused(self):
        for kind in (gloom.Worker, gloom.AsyncWorker):
            for settings in (
                {"concurrency": -1},
                {"prefetch": -1},
                {"stop_timeout": -1},
                {"concurrency": 3, "prefetch": 2},
            ):
                with self.subTest(settings), self.assertRaises(ValueError):
                    kind("echo", print, **settings)
            for type, handler in ((5, print), ("echo", None)):
                with self.assertRaises(TypeError):
                    kind(type, handler)
            for type in ("", "\ud800", "x" * 1025):
                with self.assertRaises(ValueError):
                    kind(type, print)

    def test_handler_that_cannot_be_imported(self):
        with self.assertRaisesRegex(TypeError, "import it by name"):
            gloom.Worker("echo", lambda job: None, processes=True)

    def test_job_waits_for_any_time(self):
        for timeout in (1e12, float("inf")):
            job = gloom.Job("a", "echo", None, None)
            threading.Timer(0.05, job._end, [gloom.Cancelled("over")]).start()
            self.assertTrue(job.wait(timeout))


def told_headers(job):
    return job.headers


def divide():
    return 1 / 0


strays = []  # in a process: the jobs that have ended


def report_late(job, errors):
    try:
        job.progress("late")
    except RuntimeError as err:
        errors.append(str(err))


def in_process(job):
    """A handler for a worker with processes=True."""
    what = job.body
    if what == "pid":
        return os.getpid()
    if what == "raise":
        raise Fatal("as told")
    if what == "divide":
        return divide()
    if what == "die":
        os._exit(3)
    if what == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)
        with subprocess.Popen(["sleep", "60"]) as program:
            program.terminate()  # which must not be ignored
        return what
    if what == "report":
        job.progress(os.getpid())
        return "reported"
    if what == "stay":
        strays.append(job)
        return what
    if what == "see":
        errors = []
        thread = threading.Thread(target=report_late, args=(strays.pop(), errors))
        thread.start()
        thread.join(PATIENCE)
        return errors
    if what == "wait":
        job.progress("waiting")
        return "told" if job.wait(PATIENCE) else "not told"
    if what == "hang":
        job.progress("hanging")
        threading.Event().wait()
    return what


class Processes(WorkerCase):
    def answer(self, peer, id, body):
        self.job(peer, id, body)
        while True:
            message = peer.recv()
            peer.ok()
            if message["action"] != "progress":
                return message

    def test_all(self):
        worker, peer = self.worker(in_process, processes=True)
        pid = self.answer(peer, "a", "pid")["body"]
        self.assertNotEqual(pid, os.getpid())
        self.assertEqual(self.answer(peer, "b", "pid")["body"], pid)
        answer = self.answer(peer, "c", "raise")
        self.assertEqual((answer["reason"], answer["retry"]), ("as told", False))
        self.job(peer, "d", "report")
        self.assertEqual(peer.expect("progress")["body"], pid)
        peer.ok()
        self.assertEqual(peer.expect("respond")["body"], "reported")
        peer.ok()
        self.job(peer, "e", "wait")
        peer.expect("progress")
        peer.send({"ok": True}, {"action": "cancel", "id": "e"})
        self.assertEqual(peer.expect("respond")["body"], "told")
        peer.ok()

        answer = self.answer(peer, "f", "die")
        self.assertEqual(
            (answer["action"], answer["reason"]),
            ("fail", "worker process ended with exit code 3"),
        )
        other = self.answer(peer, "g", "pid")["body"]
        self.assertNotEqual(other, pid)
        os.kill(other, signal.SIGKILL)  # while it has nothing to do
        eventually(lambda: not alive(other))
        self.assertNotIn(self.answer(peer, "h", "pid")["body"], (pid, other))

        self.job(peer, "i", "hang")
        peer.expect("progress")
        with self.assertRaises(concurrent.futures.TimeoutError):
            worker.stop(0.01)

    def test_a_signal_to_all_processes_ends_no_job(self):
        worker, peer = self.worker(in_process, processes=True)
        self.assertEqual(self.answer(peer, "a", "terminate").get("body"), "terminate")

    def test_progress_of_a_job_that_has_ended(self):
        worker, peer = self.worker(in_process, processes=True)
        self.answer(peer, "a", "stay")
        self.job(peer, "b", "see")
        self.assertEqual(peer.expect("respond")["body"], ["job 'a' has been answered"])
        peer.ok()

    def test_raw_and_stop(self):
        worker, peer = self.worker(in_process, processes=True, raw=True)
        peer.send(b'{"action":"job","id":"a","type":"echo","body":{"a":1E400}}')
        want = b'{"action":"respond","body":{"a":1E400}}'
        self.assertEqual(peer._exactly(4 + len(want))[4:], want)
        peer.ok()
        stopped = self.aside(worker.stop)
        peer.expect("leave")
        peer.ok()
        stopped.result(PATIENCE)


def alive(pid):
    """Whether a process runs, with any of its threads; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            state = stat.read().rpartition(")")[2].split()[0]
        return state != "Z" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except FileNotFoundError:
        return False


class Async(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.broker = FakeBroker()
        self.addCleanup(self.broker.__exit__)
        self.notices = []

    async def worker(self, handler, **settings):
        settings.setdefault("backoff", FAST)
        worker = gloom.AsyncWorker(
            "echo", handler, self.broker.addr, notify=self.notices.append, **settings
        )
        starting = asyncio.ensure_future(worker.start(PATIENCE))
        peer = await asyncio.to_thread(self.broker.accept)
        self.join = await asyncio.to_thread(peer.expect, "join")
        peer.ok()
        await starting
        return worker, peer

    @staticmethod
    def job(peer, id, body=None):
        peer.send({"action": "job", "id": id, "type": "echo", "body": body})

    @staticmethod
    async def recv(peer):
        return await asyncio.to_thread(peer.recv)

    async def test_concurrently(self):
        together = asyncio.Event()
        inside = []

        async def handler(job):
            inside.append(job.id)
            if len(inside) == 3:
                together.set()
            await together.wait()
            await job.progress(job.id)
            return job.body

        worker, peer = await self.worker(handler, prefetch=3)
        self.assertEqual(self.join["prefetch"], 3)
        for id in "abc":
            self.job(peer, id, id)
        got = [await self.recv(peer) for _ in range(6)]
        for action in ("progress", "respond"):
            ids = {m["id"] for m in got if m["action"] == action}
            self.assertEqual(ids, set("abc"))
        for _ in got:
            peer.ok()
        stopped = asyncio.ensure_future(worker.stop())
        self.assertEqual((await self.recv(peer))["action"], "leave")
        peer.ok()
        await stopped
        self.assertTrue(worker.done)

    async def test_failures(self):
        async def handler(job):
            if job.body == "fatal":
                raise Fatal("no")
            if job.body == "later":
                raise RetryAfter(2, "busy")
            if job.body == "divide":
                return divide()
            return object()

        worker, peer = await self.worker(handler)
        for body, answer in (
            ("fatal", {"reason": "no", "retry": False}),
            ("later", {"reason": "busy", "delay_ms": 2000}),
        ):
            self.job(peer, "a", body)
            self.assertEqual(await self.recv(peer), {"action": "fail", **answer})
            peer.ok()
        with self.assertLogs("gloom", "ERROR") as log:
            self.job(peer, "a", "divide")
            await self.recv(peer)
        self.assertIn("in divide", log.output[0])
        peer.ok()
        self.job(peer, "a")
        self.assertIn("encode answer", (await self.recv(peer))["reason"])
        # The broker is silent; no handler runs.
        late = "worker stopped after 0 s without the brokers' replies"
        for timeout in 0, 5:
            with self.assertRaisesRegex(asyncio.TimeoutError, late):
                await worker.stop(timeout)

    async def test_cancelled(self):
        causes = []

        async def handler(job):
            try:
                await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                causes.append(type(job.cause))
                self.assertTrue(job.unwanted)
                with self.assertRaises(gloom.GloomError):
                    await job.progress(1)
                raise

        worker, peer = await self.worker(handler)
        self.job(peer, "a")
        # The cancel follows at once, so the task is cancelled before it has started.
        peer.send({"action": "cancel", "id": "a"})
        answer = {"action": "fail", "reason": "cancelled"}
        self.assertEqual(await self.recv(peer), answer)
        peer.ok()
        self.job(peer, "b")
        await asyncio.to_thread(eventually, lambda: worker._tasks)
        peer.send({"action": "cancel", "id": "b"})
        self.assertEqual(await self.recv(peer), answer)
        peer.ok()
        self.job(peer, "c")
        await asyncio.to_thread(eventually, lambda: worker._tasks)
        peer.reset()
        peer = await asyncio.to_thread(self.broker.accept)
        await self.recv(peer)
        peer.ok()
        self.job(peer, "d")
        await asyncio.to_thread(eventually, lambda: worker._tasks)
        with self.assertRaises(asyncio.TimeoutError):
            await worker.stop(0)
        while worker._tasks:
            await asyncio.sleep(0)
        self.assertEqual(
            causes[-3:], [gloom.Cancelled, gloom.LostError, gloom.ClosedError]
        )

    async def test_run_until_cancelled(self):
        async def handler(job):
            return job.body

        before = signal.getsignal(signal.SIGINT)
        worker = gloom.AsyncWorker("echo", handler, self.broker.addr, backoff=FAST)
        running = asyncio.ensure_future(worker.run())
        peer = await asyncio.to_thread(self.broker.accept)
        await self.recv(peer)
        peer.ok()
        self.job(peer, "a", 5)
        self.assertEqual((await self.recv(peer))["body"], 5)
        peer.ok()
        running.cancel()
        self.assertEqual((await self.recv(peer))["action"], "leave")
        peer.ok()
        with self.assertRaises(asyncio.CancelledError):
            await running
        # asyncio.run restores its own handler.
        self.assertEqual(signal.getsignal(signal.SIGINT), before)

    async def test_refused(self):
        worker = gloom.AsyncWorker(
            "echo", print, self.broker.addr, notify=self.notices.append
        )
        running = asyncio.ensure_future(worker.run())
        peer = await asyncio.to_thread(self.broker.accept)
        await self.recv(peer)
        peer.refuse("forbidden")
        with self.assertRaises(gloom.Forbidden):
            await running
        worker = gloom.AsyncWorker(
            "echo", print, closed_port(), notify=self.notices.append
        )
        with self.assertRaises(gloom.NotConnected):
            await worker.start(0.02)


if __name__ == "__main__":
    unittest.main()
