"""The submitters, against a scripted broker."""

import asyncio
import concurrent.futures
import logging
import os
import signal
import sys
import threading
import time
import traceback
import unittest
import warnings
from collections import deque
from unittest import mock

from support import PATIENCE, FakeBroker, closed_port, eventually

import gloom
from gloom import Event, RawJSON
from gloom._options import log_notice

FAST = (0.001, 0.01)


def interrupted(function, errors):
    """Interrupt a call at the start of function number len(errors) that it calls; returns
    whether it called so many."""
    left = [len(errors)]

    def interrupt(frame, event, arg):
        left[0] -= 1
        if left[0] < 0:
            sys.settrace(None)
            raise KeyboardInterrupt

    traced = sys.gettrace()
    try:
        sys.settrace(interrupt)
        function()
    except KeyboardInterrupt as err:
        errors.append(err)
        return True
    finally:
        sys.settrace(traced)
    return False


class SubmitterCase(unittest.TestCase):
    def setUp(self):
        self.broker = FakeBroker()
        self.addCleanup(self.broker.__exit__)
        self.notices = []

    def submitter(self, *addrs, **settings):
        settings.setdefault("backoff", FAST)
        settings.setdefault("notify", self.notices.append)
        submitter = gloom.Submitter(*(addrs or (self.broker.addr,)), **settings)
        self.addCleanup(submitter.close)
        return submitter

    def events(self):
        return [notice.event for notice in self.notices]


class Jobs(SubmitterCase):
    def test_the_frame(self):
        jobs = self.submitter()
        jobs.submit("echo", {"a": [1, "é"]}, id="a1")
        peer = self.broker.accept()
        self.assertEqual(
            peer.recv(),
            {
                "action": "submit",
                "id": "a1",
                "type": "echo",
                "backoff_ms": 1000,
                "body": {"a": [1, "é"]},
            },
        )

    def test_every_option(self):
        jobs = self.submitter()
        jobs.submit(
            None,
            id="a1",
            priority=-5,
            delay=0.1,
            timeout=2,
            retries=0,
            backoff=0.0001,
            expires=3600,
            detach=True,
            ack=False,
            on_progress=print,
            groups=("tenant", "host"),
            keep=60,
            age=1.5,
            headers=RawJSON(b'{"k": 1.0}'),
        )
        self.assertEqual(
            self.broker.accept().recv(),
            {
                "action": "submit",
                "id": "a1",
                "priority": -5,
                "delay_ms": 100,
                "timeout_ms": 2000,
                "retries": 0,
                "backoff_ms": 1,
                "expires_ms": 3600000,
                "detach": True,
                "ack": False,
                "progress": True,
                "groups": ["tenant", "host"],
                "keep_ms": 60000,
                "age_ms": 1500,
                "headers": {"k": 1.0},
                "body": None,
            },
        )

    def test_ack_answer_progress(self):
        told = []
        jobs = self.submitter()
        job = jobs.submit("echo", 1, on_progress=told.append)
        peer = self.broker.accept()
        id = peer.expect("submit")["id"]
        self.assertEqual((job.id, job.acked, job.done()), (id, False, False))
        peer.ok(id)
        job.ack(PATIENCE)
        self.assertTrue(job.acked)
        peer.send({"id": id, "progress": 0.5}, {"id": id, "body": [1]})
        self.assertEqual(job.result(PATIENCE), [1])
        self.assertEqual((told, jobs.outstanding), ([0.5], 0))

    def test_raw(self):
        body = b'{"z":1.0,"a":123456789012345678901234567890,"u":"\\u00e9"}'
        jobs = self.submitter(raw=True)
        job = jobs.submit("echo", RawJSON(body))
        peer = self.broker.accept()
        id = peer.take()
        peer.send(b'{"id":"%s","body":%s}' % (id.encode(), body))
        self.assertEqual(job.result(PATIENCE), RawJSON(body))
        job = jobs.submit("echo", 1, raw=False)
        peer.send({"id": peer.take(), "body": 1.5})
        self.assertEqual(job.result(PATIENCE), 1.5)

    def test_answers_in_any_order(self):
        jobs = self.submitter()
        pending = [jobs.submit("echo", n) for n in range(50)]
        peer = self.broker.accept()
        ids = [peer.take() for _ in pending]
        for id in reversed(ids):
            peer.send({"id": id, "body": id})
        done, rest = concurrent.futures.wait(pending, PATIENCE)
        self.assertFalse(rest)
        self.assertEqual([job.result() for job in pending], ids)

    def test_many_threads(self):
        jobs = self.submitter(window=16)
        results = []

        def work(number):
            for i in range(50):
                results.append(jobs.do("echo", [number, i], wait=PATIENCE) == [number, i])

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        peer = self.broker.accept()
        for _ in range(400):
            message = peer.expect("submit")
            peer.send(
                {"ok": True, "id": message["id"]},
                {"id": message["id"], "body": message["body"]},
            )
        for thread in threads:
            thread.join(PATIENCE)
        self.assertEqual(results, [True] * 400)

    def test_refused_and_failed(self):
        jobs = self.submitter()
        first, second = jobs.submit("echo", id="a"), jobs.submit("echo", id="b")
        peer = self.broker.accept()
        peer.refuse("id_exists", peer.expect("submit")["id"])
        peer.refuse("job_failed", peer.take())
        with self.assertRaisesRegex(gloom.IDExists, "because of id_exists"):
            first.result(PATIENCE)
        with self.assertRaises(gloom.IDExists):
            first.ack(PATIENCE)
        with self.assertRaises(gloom.JobFailed) as caught:
            second.result(PATIENCE)
        self.assertEqual((caught.exception.id, second.acked), ("b", True))

    def test_detached(self):
        jobs = self.submitter()
        job = jobs.submit("echo", detach=True)
        self.broker.accept().take()
        self.assertIsNone(job.result(PATIENCE))

    def test_detached_without_ack_is_confirmed(self):
        jobs = self.submitter()
        pending = [jobs.submit("echo", detach=True, ack=False, id=id) for id in "ab"]
        peer = self.broker.accept()
        submits, action = 0, ""
        while submits < 2 or action != "ping":
            action = peer.recv()["action"]
            submits += action == "submit"
            if action == "ping":
                peer.ok()
        for job in pending:
            self.assertIsNone(job.result(PATIENCE))

    def test_misuse(self):
        jobs = self.submitter()
        for arguments, kind in (
            ({"type": ""}, ValueError),
            ({"type": 5}, TypeError),
            ({"id": ""}, ValueError),
            ({"id": "x" * 1025}, ValueError),
            ({"body": object()}, TypeError),
            ({"body": float("nan")}, ValueError),
            ({"priority": 2**63}, ValueError),
            ({"priority": -(2**63) - 1}, ValueError),
            ({"priority": True}, TypeError),
            ({"priority": 1.5}, TypeError),
            ({"delay": -1}, ValueError),
            ({"delay": "1"}, TypeError),
            ({"delay": float("nan")}, ValueError),
            ({"timeout": 31536000.001}, ValueError),
            ({"backoff": 86400.001}, ValueError),
            ({"retries": -1}, ValueError),
            ({"retries": 1001}, ValueError),
            ({"groups": "tenant"}, TypeError),
            ({"groups": 5}, TypeError),
            ({"groups": [5]}, TypeError),
            ({"groups": [""]}, ValueError),
            ({"keep": 86400.001}, ValueError),
            ({"age": -1}, ValueError),
            ({"headers": object()}, TypeError),
            ({"nosuch": 1}, TypeError),
        ):
            with self.subTest(arguments), self.assertRaises(kind):
                jobs.submit(**{"type": "echo", **arguments})
        for wrong in (lambda: jobs.attach("a", nosuch=1), lambda: jobs.do("a", 1, 2)):
            with self.assertRaises(TypeError):
                wrong()
        self.assertEqual(jobs.outstanding, 0)

    def test_too_large(self):
        jobs = self.submitter(max_frame=2000)
        jobs.connect(PATIENCE)
        with self.assertRaisesRegex(gloom.SizeError, "at most 2000"):
            jobs.submit("echo", "x" * 2000)
        self.assertEqual(jobs.outstanding, 0)
        job = jobs.submit("echo", "x" * 1800)
        self.broker.accept().take()
        job.ack(PATIENCE)

    def test_pings_are_answered(self):
        jobs = self.submitter()
        job = jobs.submit("echo")
        peer = self.broker.accept()
        id = peer.expect("submit")["id"]
        peer.send({"action": "ping"}, {"ok": True, "id": id})
        peer.expect("pong")
        peer.send({"id": id, "body": 1})
        self.assertEqual(job.result(PATIENCE), 1)


class Cancels(SubmitterCase):
    def start(self):
        jobs = self.submitter()
        job = jobs.submit("echo", id="a")
        peer = self.broker.accept()
        peer.take()
        return jobs, job, peer

    def ask(self, jobs, id):
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        return pool.submit(jobs.cancel, id, PATIENCE)

    def test_cancelled(self):
        jobs, job, peer = self.start()
        reply = self.ask(jobs, "a")
        self.assertEqual(peer.recv(), {"action": "cancel", "id": "a"})
        peer.ok("a")
        reply.result(PATIENCE)
        with self.assertRaises(gloom.Cancelled):
            job.result(PATIENCE)
        self.assertTrue(job.cancelled())
        self.assertFalse(job.cancel())

    def test_answer_wins(self):
        jobs, job, peer = self.start()
        reply = self.ask(jobs, "a")
        peer.expect("cancel")
        peer.send({"id": "a", "body": 7})
        peer.refuse("unknown_id", "a")
        with self.assertRaises(gloom.UnknownID):
            reply.result(PATIENCE)
        self.assertEqual(job.result(PATIENCE), 7)
        self.assertFalse(job.cancelled())

    def test_without_waiting(self):
        jobs, job, peer = self.start()
        self.assertTrue(job.cancel())
        peer.expect("cancel")
        peer.ok("a")
        with self.assertRaises(gloom.Cancelled):
            job.result(PATIENCE)

    def test_do_gives_up(self):
        jobs, _, peer = self.start()
        late = concurrent.futures.TimeoutError
        with self.assertRaisesRegex(late, "after 0.01 s"):
            jobs.do("echo", wait=0.01)
        id = peer.take()
        self.assertEqual(peer.expect("cancel")["id"], id)
        peer.ok(id)
        eventually(lambda: jobs.outstanding == 1)

    def test_from_a_callback(self):
        jobs, job, peer = self.start()
        failed = concurrent.futures.Future()

        def callback(_):
            for ask in (lambda: jobs.cancel("x"), lambda: jobs.do("echo"), jobs.ping, jobs.drain):
                try:
                    ask()
                    failed.set_result("waited")
                except RuntimeError:
                    pass
            failed.set_result(None)

        job.add_done_callback(callback)
        peer.send({"id": "a", "body": 1})
        self.assertIsNone(failed.result(PATIENCE))

    def test_ping(self):
        jobs, _, peer = self.start()
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        reply = pool.submit(jobs.ping, PATIENCE)
        peer.expect("ping")
        peer.ok()
        reply.result(PATIENCE)


class Changes(SubmitterCase):
    def ask(self, jobs, **what):
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        return pool.submit(lambda: jobs.change("a", wait=PATIENCE, **what))

    def test_frames(self):
        jobs = self.submitter()
        jobs.submit("echo", id="a")
        peer = self.broker.accept()
        peer.take()
        for what, said in (
            ({"priority": 0}, {"priority": 0}),
            ({"groups": []}, {"groups": []}),
            ({"groups": ["b"], "delay": 1.5}, {"groups": ["b"], "delay_ms": 1500}),
            ({"delay": 0}, {"delay_ms": 0}),
        ):
            reply = self.ask(jobs, **what)
            self.assertEqual(peer.recv(), {"action": "change", "id": "a", **said})
            peer.ok("a")
            reply.result(PATIENCE)
        reply = self.ask(jobs, priority=1)
        peer.expect("change")
        peer.refuse("invalid_state", "a")
        with self.assertRaises(gloom.InvalidState):
            reply.result(PATIENCE)
        with self.assertRaises(ValueError):
            jobs.change("a", priority=2**63)

    def test_refused_after_a_silent_submit(self):
        jobs = self.submitter()
        job = jobs.submit("echo", id="a", ack=False)
        peer = self.broker.accept()
        peer.expect("submit")
        reply = self.ask(jobs, groups=["b"])
        peer.expect("ping")
        peer.expect("change")
        peer.ok()
        peer.refuse("overloaded", "a")
        with self.assertRaises(gloom.Overloaded):
            reply.result(PATIENCE)
        peer.send({"id": "a", "body": 1})
        self.assertEqual(job.result(PATIENCE), 1)


class Kept(SubmitterCase):
    """Jobs that outlive their connection."""

    def start(self, *addrs, **options):
        jobs = self.submitter(*addrs)
        job = jobs.submit("echo", 1, id="a", keep=60, **options)
        return jobs, job, self.broker.accept()

    def test_goes_on(self):
        told = []
        jobs, job, peer = self.start(on_progress=told.append)
        peer.take()
        job.ack(PATIENCE)
        for n in range(3):
            peer.reset()
            peer = self.broker.accept()
            attach = {"action": "attach", "id": "a", "progress": True}
            self.assertEqual(peer.recv(), attach)
            if n:  # the second time it is lost again before the reply
                peer.send({"ok": True, "id": "a", "state": "running"})
                peer.send({"id": "a", "progress": n})
                eventually(lambda: n in told)
        self.assertEqual(jobs.outstanding, 1)
        peer.send({"id": "a", "body": 2})
        self.assertEqual(job.result(PATIENCE), 2)
        self.assertEqual((told, jobs.outstanding), ([1, 2], 0))

    def test_attach_with_a_callback_that_is_false(self):
        class Told(list):
            __call__ = list.append

        jobs, told = self.submitter(), Told()
        job = jobs.attach("a", on_progress=told)
        peer = self.broker.accept()
        attach = {"action": "attach", "id": "a", "progress": True}
        self.assertEqual(peer.recv(), attach)
        peer.send({"ok": True, "id": "a", "state": "running"})
        peer.send({"id": "a", "progress": 1}, {"id": "a", "body": 2})
        self.assertEqual(job.result(PATIENCE), 2)
        self.assertEqual(told, [1])

    def test_others_are_lost(self):
        jobs, kept, peer = self.start()
        other = jobs.submit("echo", id="b")
        for _ in "ab":
            peer.take()
        other.ack(PATIENCE)
        peer.reset()
        self.assertIsInstance(other.exception(PATIENCE), gloom.LostError)
        peer = self.broker.accept()
        self.assertEqual(peer.expect("attach")["id"], "a")
        peer.send({"ok": True, "id": "a", "state": "ended"}, {"id": "a", "body": 2})
        self.assertEqual(kept.result(PATIENCE), 2)

    def test_submitted_again_when_asked(self):
        for ack, acked in ((True, False), (True, True), (False, False)):
            with self.subTest(ack=ack, acked=acked):
                jobs, job, peer = self.start(at_least_once=True, ack=ack)
                first = peer.expect("submit")
                if acked:
                    peer.ok("a")
                    job.ack(PATIENCE)
                peer.reset()
                peer = self.broker.accept()
                peer.expect("attach")
                peer.refuse("unknown_id", "a")
                self.assertEqual(peer.expect("submit"), first)
                if ack:
                    peer.ok("a")
                other = jobs.submit("echo", id="b")
                peer.take()
                other.ack(PATIENCE)
                peer.send({"id": "a", "body": 2})
                self.assertEqual(job.result(PATIENCE), 2)
                jobs.close()

    def test_attached_to_when_the_lost_submit_comes_late(self):
        for ack in (True, False):
            for there in (True, False):
                with self.subTest(ack=ack, there=there):
                    jobs, job, peer = self.start(at_least_once=True, ack=ack)
                    peer.expect("submit")
                    peer.reset()
                    peer = self.broker.accept()
                    peer.expect("attach")
                    peer.refuse("unknown_id", "a")
                    peer.expect("submit")
                    peer.refuse("id_exists", "a")
                    peer.expect("attach")
                    if there:
                        peer.send({"ok": True, "id": "a"}, {"id": "a", "body": 2})
                        self.assertEqual(job.result(PATIENCE), 2)
                    else:
                        peer.refuse("unknown_id", "a")
                        self.assertIsInstance(job.exception(PATIENCE), gloom.LostError)
                    jobs.close()

    def refuse_again(self, peer, error):
        """The broker does not know the job after a loss, and ends its second submit."""
        peer.reset()
        peer = self.broker.accept()
        peer.expect("attach")
        peer.refuse("unknown_id", "a")
        peer.expect("submit")
        peer.refuse(error, "a")

    def test_lost_when_it_is_refused_and_may_have_run(self):
        jobs, job, peer = self.start(at_least_once=True)
        peer.take()
        job.ack(PATIENCE)
        self.refuse_again(peer, "overloaded")
        err = job.exception(PATIENCE)
        self.assertIsInstance(err, gloom.LostError)
        self.assertIsInstance(err.cause, gloom.Overloaded)
        self.assertEqual((err.acked, err.sent, jobs.outstanding), (True, True, 0))

    def test_ack_stays_through_a_second_loss(self):
        for closed in (False, True):
            with self.subTest(closed=closed):
                jobs, job, peer = self.start(at_least_once=True)
                peer.take()
                job.ack(PATIENCE)
                peer.reset()
                peer = self.broker.accept()
                peer.expect("attach")
                peer.refuse("unknown_id", "a")
                peer.expect("submit")
                job.ack(PATIENCE)
                jobs.close() if closed else self.refuse_again(peer, "overloaded")
                err = job.exception(PATIENCE)
                self.assertIsInstance(err, gloom.LostError)
                self.assertTrue(err.acked)
                jobs.close()

    def test_cancelled_before_it_would_be_submitted_again(self):
        jobs, job, peer = self.start(at_least_once=True)
        peer.take()
        job.ack(PATIENCE)
        peer.reset()
        peer = self.broker.accept()
        peer.expect("attach")
        job.cancel()
        peer.expect("cancel")
        peer.refuse("unknown_id", "a")
        peer.refuse("unknown_id", "a")
        self.assertIsInstance(job.exception(PATIENCE), gloom.LostError)
        other = jobs.submit("echo", id="b")
        self.assertEqual(peer.expect("submit")["id"], "b")

    def test_end_of_a_job_that_was_submitted_again(self):
        jobs, job, peer = self.start(at_least_once=True, ack=False)
        peer.expect("submit")
        self.refuse_again(peer, "job_failed")
        self.assertIsInstance(job.exception(PATIENCE), gloom.JobFailed)

    def test_lost_when_it_may_have_run(self):
        jobs, job, peer = self.start()
        peer.expect("submit")
        peer.reset()
        peer = self.broker.accept()
        peer.expect("attach")
        peer.refuse("unknown_id", "a")
        err = job.exception(PATIENCE)
        self.assertIsInstance(err, gloom.LostError)
        self.assertEqual((err.acked, err.sent), (False, True))

    def test_lost_when_it_was_taken_and_is_not_there_any_more(self):
        jobs, job, peer = self.start()
        peer.take()
        job.ack(PATIENCE)
        for _ in range(2):
            peer.reset()
            peer = self.broker.accept()
            peer.expect("attach")
        peer.refuse("unknown_id", "a")
        err = job.exception(PATIENCE)
        self.assertIsInstance(err, gloom.LostError)
        self.assertIsInstance(err.cause, gloom.UnknownID)
        self.assertEqual((err.acked, jobs.outstanding), (True, 0))

    def test_taken_over(self):
        jobs, job, peer = self.start()
        peer.take()
        peer.refuse("taken_over", "a")
        self.assertIsInstance(job.exception(PATIENCE), gloom.TakenOver)
        peer.reset()
        peer = self.broker.accept()
        again = jobs.submit("echo", id="b")
        peer.take()  # and no attach
        again.ack(PATIENCE)

    def test_cancelled_after_the_loss(self):
        jobs, job, peer = self.start()
        peer.take()
        job.ack(PATIENCE)
        port = self.broker.addr.split(":")[1]
        self.broker.stop()
        peer.reset()
        eventually(lambda: self.events()[-1] is Event.FAILED)
        self.assertTrue(job.cancel())
        with self.assertRaises(gloom.NotConnected):
            jobs.cancel("another", PATIENCE)
        self.broker.start(int(port))
        peer = self.broker.accept()
        peer.expect("attach")
        peer.expect("cancel")
        peer.send({"ok": True, "id": "a", "state": "queued"})
        peer.ok("a")
        self.assertIsInstance(job.exception(PATIENCE), gloom.Cancelled)

    def test_close(self):
        for lost in (False, True):
            jobs, job, peer = self.start()
            peer.take()
            if lost:
                self.broker.stop()
                peer.reset()
                eventually(lambda: self.events()[-1] is Event.FAILED)
            jobs.close()
            err = job.exception(PATIENCE)
            self.assertIsInstance(err, gloom.LostError)
            self.assertIsInstance(err.cause, gloom.ClosedError)

    def test_another_broker(self):
        with FakeBroker() as other:
            jobs, job, peer = self.start(self.broker.addr, other.addr)
            peer.take()
            self.broker.stop()
            peer.reset()
            other.accept()
            err = job.exception(PATIENCE)
            self.assertIsInstance(err, gloom.LostError)
            self.assertEqual((err.addr, jobs.outstanding), (self.broker.addr, 0))

    def test_the_same_broker_first(self):
        with FakeBroker() as other:
            jobs, job, peer = self.start(self.broker.addr, other.addr)
            peer.take()
            peer.reset()
            self.broker.accept().expect("attach")

    def test_attach(self):
        told = []
        jobs = self.submitter()
        job = jobs.attach("a", on_progress=told.append)
        peer = self.broker.accept()
        attach = {"action": "attach", "id": "a", "progress": True}
        self.assertEqual(peer.recv(), attach)
        peer.send({"ok": True, "id": "a", "state": "running"})
        job.ack(PATIENCE)
        peer.reset()
        peer = self.broker.accept()
        self.assertEqual(peer.recv(), attach)
        peer.send({"ok": True, "id": "a", "state": "ended"}, {"id": "a", "body": 1})
        self.assertEqual(job.result(PATIENCE), 1)
        job = jobs.attach("b")
        peer.expect("attach")
        peer.refuse("unknown_id", "b")
        self.assertIsInstance(job.exception(PATIENCE), gloom.UnknownID)
        self.assertEqual(jobs.outstanding, 0)


class Window(SubmitterCase):
    def test_full(self):
        jobs = self.submitter(window=2)
        jobs.connect(PATIENCE)
        pending = [jobs.submit("echo"), jobs.submit("echo")]
        with self.assertRaisesRegex(gloom.WindowFull, "2 jobs outstanding"):
            jobs.submit("echo", wait=0)
        with self.assertRaises(gloom.WindowFull):
            jobs.submit("echo", wait=0.01)
        peer = self.broker.accept()
        ids = [peer.take() for _ in pending]
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        third = pool.submit(jobs.submit, "echo")
        peer.send({"id": ids[1], "body": 1})
        peer.take()
        self.assertFalse(third.result(PATIENCE).done())
        self.assertEqual(jobs.outstanding, 2)

    def test_broker_that_does_not_read(self):
        jobs = self.submitter()
        jobs.connect(PATIENCE)
        peer = self.broker.accept()
        body = "x" * 1_000_000
        sent = 0
        with self.assertRaisesRegex(gloom.WindowFull, "too many bytes unsent"):
            while sent < 100:
                jobs.submit("echo", body, wait=0.3)
                sent += 1
        self.assertGreater(sent, 0)
        for _ in range(sent):
            peer.take()
        jobs.submit("echo", body, wait=PATIENCE)
        peer.take()

    def test_from_a_callback(self):
        jobs = self.submitter(window=1)
        first = jobs.submit("echo", 1)
        peer = self.broker.accept()
        outcome = concurrent.futures.Future()

        def callback(job):
            try:
                second = jobs.submit("echo", 2)  # its own place is free again
                with self.assertRaises(gloom.WindowFull):
                    jobs.submit("echo", 3)
                outcome.set_result(second)
            except BaseException as err:
                outcome.set_exception(err)

        first.add_done_callback(callback)
        peer.send({"id": peer.take(), "body": 1})
        second = outcome.result(PATIENCE)
        peer.send({"id": peer.take(), "body": 2})
        self.assertEqual(second.result(PATIENCE), 2)

    def test_interrupted_while_the_window_is_full(self):
        # Python leaves SIGINT ignored if it was started so, as in the background of a shell.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        jobs = self.submitter(window=1)
        jobs.submit("echo", 1)
        peer = self.broker.accept()

        def interrupt():
            eventually(lambda: jobs._core._connector._turns)  # submit waits
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with self.assertRaises(KeyboardInterrupt):
            jobs.submit("echo", 2)
        peer.send({"id": peer.take(), "body": 1})
        eventually(lambda: not jobs.outstanding)
        jobs.submit("echo", 3)
        self.assertEqual(peer.expect("submit")["body"], 3)

    def test_interrupted_before_the_loop_is_asked_to_send(self):
        jobs = self.submitter()
        jobs.connect()
        peer = self.broker.accept()
        with mock.patch.object(jobs._thread, "call", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                jobs.submit("echo", 1)
        second = jobs.submit("echo", 2)
        self.assertEqual(peer.expect("submit")["body"], 1)
        peer.ok()
        peer.send({"id": peer.take(), "body": 2})
        self.assertEqual(second.result(PATIENCE), 2)

    def test_interrupted_while_another_thread_relies_on_it(self):
        jobs = self.submitter()
        jobs.connect()
        peer = self.broker.accept()
        call, others = jobs._thread.call, []

        def interrupt_first(*args):
            if others:
                return call(*args)
            others.append(None)
            other = threading.Thread(target=lambda: others.append(jobs.submit("echo", 2)))
            other.start()
            other.join()
            raise KeyboardInterrupt

        with mock.patch.object(jobs._thread, "call", side_effect=interrupt_first):
            with self.assertRaises(KeyboardInterrupt):
                jobs.submit("echo", 1)
        peer.send({"id": peer.take(), "body": 1}, {"id": peer.take(), "body": 2})
        self.assertEqual(others[1].result(PATIENCE), 2)

    def test_interrupted_at_the_start_of_any_function(self):
        thread = self.submitter()._thread
        errors = []  # their tracebacks keep what the interrupted functions held
        while interrupted(lambda: thread.call(int), errors):
            called = threading.Event()
            other = threading.Thread(target=thread.call, args=(called.set,), daemon=True)
            other.start()
            self.assertTrue(called.wait(PATIENCE), f"after {len(errors)} interrupts")
        self.assertGreater(len(errors), 3)

    def test_an_interrupted_close_can_be_repeated(self):
        errors = []
        while True:
            jobs = self.submitter()
            more = interrupted(jobs.close, errors)
            other = threading.Thread(target=jobs.close, daemon=True)
            other.start()
            other.join(PATIENCE)
            self.assertFalse(other.is_alive(), f"at function {len(errors)}")
            self.assertTrue(jobs._thread.loop.is_closed())
            if not more:
                break
        self.assertGreater(len(errors), 3)

    def test_an_interrupted_submit_takes_no_place_in_the_window(self):
        jobs = self.submitter(window=1)
        jobs.connect()
        peer = self.broker.accept()
        connector = jobs._core._connector
        with mock.patch.object(connector, "inbox") as inbox:
            inbox.__len__.return_value = 0
            inbox.append.side_effect = KeyboardInterrupt
            with self.assertRaises(KeyboardInterrupt):
                jobs.submit("echo", 1)
        self.assertEqual(jobs.outstanding, 0)
        jobs.submit("echo", 2, wait=0)
        self.assertEqual(peer.expect("submit")["body"], 2)

    def test_a_signal_handler_may_submit(self):
        jobs = self.submitter()
        jobs.connect()
        peer = self.broker.accept()

        class Inbox(deque):
            def append(self, job):  # the signal comes here
                if signals:
                    signals.pop()
                    jobs.submit("echo", 2)
                super().append(job)

        signals, jobs._core._connector.inbox = ["one"], Inbox()
        submit = threading.Thread(target=jobs.submit, args=("echo", 1), daemon=True)
        submit.start()
        submit.join(PATIENCE)
        self.assertFalse(submit.is_alive())
        self.assertEqual(peer.expect("submit")["body"], 2)
        self.assertEqual(peer.expect("submit")["body"], 1)

    def test_outstanding_counts_no_job_twice(self):
        jobs = self.submitter()
        jobs.connect()
        self.broker.accept()
        told = []

        def begin_inbox():  # while the loop takes the jobs out of the last one
            reader = threading.Thread(target=lambda: told.append(jobs.outstanding))
            reader.start()
            reader.join(0.05)
            return deque()

        with mock.patch("gloom._connector.deque", side_effect=begin_inbox):
            jobs.submit("echo")
            eventually(lambda: told)
        self.assertEqual(told[0], 1)

    def test_drain_sends_the_job_of_an_interrupted_submit(self):
        jobs = self.submitter()
        jobs.connect()
        peer = self.broker.accept()
        with mock.patch.object(jobs._thread, "call", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                jobs.submit("echo", 1)
        threading.Thread(target=jobs.drain, args=(PATIENCE,)).start()
        peer.send({"id": peer.take(), "body": 1})
        self.assertTrue(peer.at_end())

    def test_failing_callbacks_harm_nobody(self):
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)
        jobs = self.submitter()

        def fail(_):
            raise ValueError("in a callback")

        job = jobs.submit("echo", on_progress=fail)
        job.add_done_callback(fail)
        peer = self.broker.accept()
        id = peer.take()
        peer.send({"id": id, "progress": 1}, {"id": id, "body": 1})
        self.assertEqual(job.result(PATIENCE), 1)
        other = jobs.submit("echo")
        peer.send({"id": peer.take(), "body": 2})
        self.assertEqual(other.result(PATIENCE), 2)


class Losses(SubmitterCase):
    def test_pending_jobs_fail_at_once(self):
        jobs = self.submitter()
        acked, unacked = jobs.submit("echo", id="a"), jobs.submit("echo", id="b")
        peer = self.broker.accept()
        peer.take()
        peer.expect("submit")
        acked.ack(PATIENCE)
        peer.reset()
        for job, told in ((acked, True), (unacked, False)):
            err = job.exception(PATIENCE)
            self.assertIsInstance(err, gloom.LostError)
            self.assertEqual(
                (err.id, err.acked, err.sent, err.addr),
                (job.id, told, True, self.broker.addr),
            )
        self.assertEqual(jobs.outstanding, 0)

    def test_comes_back(self):
        jobs = self.submitter()
        jobs.connect(PATIENCE)
        for n in range(5):
            job = jobs.submit("echo", n)
            peer = self.broker.accept()
            peer.send({"id": peer.take(), "body": n})
            self.assertEqual(job.result(PATIENCE), n)
            peer.close()
            eventually(lambda: self.events().count(Event.LOST) == n + 1)
        self.assertEqual(self.events()[:3], [Event.CONNECTED, Event.LOST, Event.CONNECTED])

    def test_half_a_frame(self):
        jobs = self.submitter()
        job = jobs.submit("echo")
        peer = self.broker.accept()
        peer.take()
        peer.sock.sendall(b"\x00\x00\x00\x10{")
        peer.close()
        with self.assertRaisesRegex(gloom.LostError, "middle of a frame"):
            job.result(PATIENCE)

    def test_nonsense(self):
        for nonsense in (
            b"\xff\xff\xff\xff",
            b"\x00\x00\x00\x00",
            b"\x00\x00\x00\x02[]",
            b"\x00\x00\x00\x03{\xff}",
            b'\x00\x00\x00\x0b{"ok":true}' * 2,
        ):
            with self.subTest(nonsense), FakeBroker() as broker:
                jobs = self.submitter(broker.addr)
                job = jobs.submit("echo")
                peer = broker.accept()
                peer.expect("submit")
                peer.sock.sendall(nonsense)
                err = job.exception(PATIENCE)
                self.assertIsInstance(err, gloom.LostError)
                self.assertIsInstance(err.cause, gloom.ProtocolError)
                jobs.close()

    def test_silence(self):
        jobs = self.submitter(heartbeat=0.1)
        peer = self.broker.accept()
        self.assertEqual(peer.recv(), {"action": "hello", "heartbeat_ms": 100})
        peer.ok()
        job = jobs.submit("echo")
        with self.assertRaisesRegex(gloom.LostError, r"no byte came for 0\.[3-9]"):
            job.result(PATIENCE)

    def test_size_error_is_the_cause(self):
        jobs = self.submitter()
        first, second = jobs.submit("echo", id="a"), jobs.submit("echo", id="b")
        peer = self.broker.accept()
        for _ in "ab":
            peer.expect("submit")
        peer.refuse("size_error")
        peer.close()
        self.assertIsInstance(first.exception(PATIENCE), gloom.SizeError)
        self.assertIsInstance(second.exception(PATIENCE).cause, gloom.SizeError)


class Brokers(SubmitterCase):
    def test_none(self):
        with self.assertRaisesRegex(gloom.NotConnected, "no broker reached"):
            with self.submitter(closed_port()):
                self.fail("connected")
        jobs = self.submitter(closed_port(), closed_port())
        with self.assertRaisesRegex(gloom.NotConnected, "; 127"):
            jobs.connect()
        try:  # nothing of the loop is in the traceback
            jobs.connect()
        except gloom.NotConnected:
            self.assertNotIn("_connector.py", traceback.format_exc())
        with self.assertRaisesRegex(gloom.NotConnected, "within 0.01 s"):
            jobs.submit("echo", wait=0.01)
        with self.assertRaises(gloom.NotConnected):
            jobs.submit("echo", wait=0)

    def test_only_long_waits_for_the_next_attempt_are_logged(self):
        with self.assertLogs("gloom", "WARNING") as log:
            for wait in 0.03, 2.5:
                log_notice(gloom.Notice(Event.FAILED, "broker", OSError("no"), wait))
        first = "WARNING:gloom:broker: failed: no"
        self.assertEqual(log.output, [first, first + "; next attempt in 2.5 s"])

    def test_submit_waits_for_the_first_one(self):
        addr = closed_port()
        jobs = self.submitter(addr)
        eventually(lambda: Event.FAILED in self.events())
        with self.assertRaisesRegex(gloom.NotConnected, "no broker reached"):
            jobs.connect(0.01)
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        job = pool.submit(jobs.submit, "echo")
        self.broker.stop()
        self.broker.start(int(addr.split(":")[1]))
        peer = self.broker.accept()
        peer.send({"id": peer.take(), "body": 1})
        self.assertEqual(job.result(PATIENCE).result(PATIENCE), 1)

    def test_next_one(self):
        with FakeBroker() as other:
            jobs = self.submitter(closed_port(), self.broker.addr, other.addr)
            jobs.submit("echo")
            peer = self.broker.accept()
            peer.take()
            self.broker.stop()
            peer.close()
            peer = other.accept()
            job = jobs.submit("echo")
            peer.send({"id": peer.take(), "body": 1})
            self.assertEqual(job.result(PATIENCE), 1)

    def test_draining(self):
        with FakeBroker() as other:
            jobs = self.submitter(self.broker.addr, other.addr)
            kept, refused = jobs.submit("echo"), jobs.submit("echo")
            old = self.broker.accept()
            kept_id = old.take()
            old.refuse("draining", old.expect("submit")["id"])
            with self.assertRaises(gloom.Draining):
                refused.result(PATIENCE)
            new = other.accept()
            eventually(lambda: self.events().count(Event.CONNECTED) == 2)
            moved = jobs.submit("echo")
            new.send({"id": new.take(), "body": 2})
            self.assertEqual(moved.result(PATIENCE), 2)
            self.assertTrue(kept.cancel())
            self.assertEqual(old.expect("cancel")["id"], kept_id)
            old.refuse("unknown_id", kept_id)
            old.send({"id": kept_id, "body": 1})
            self.assertEqual(kept.result(PATIENCE), 1)
            self.assertTrue(old.at_end())
            self.assertNotIn(Event.LOST, self.events())

    def test_draining_with_nowhere_to_go(self):
        jobs = self.submitter()
        job = jobs.submit("echo")
        peer = self.broker.accept()
        peer.refuse("draining", peer.expect("submit")["id"])
        self.assertIsInstance(job.exception(PATIENCE), gloom.Draining)
        job = jobs.submit("echo")
        peer.send({"id": peer.take(), "body": 1})
        self.assertEqual(job.result(PATIENCE), 1)

    def test_a_connection_too_many(self):
        jobs = self.submitter()
        job = jobs.submit("echo")
        peer = self.broker.accept()
        peer.expect("submit")
        peer.refuse("overloaded")
        err = job.exception(PATIENCE)
        self.assertIsInstance(err.cause, gloom.Overloaded)


class Hello(SubmitterCase):
    def test_limits(self):
        jobs = self.submitter(token="s3cret", client="test/1")
        peer = self.broker.accept()
        self.assertEqual(
            peer.recv(),
            {"action": "hello", "token": "s3cret", "client": "test/1"},
        )
        peer.send(
            {"ok": True, "server": "x", "limits": {"max_frame": 1024, "more": []}}
        )
        jobs.connect(PATIENCE)
        with self.assertRaisesRegex(gloom.SizeError, "at most 1024"):
            jobs.submit("echo", "x" * 1024)

    def test_unauthorized(self):
        jobs = self.submitter(token="wrong", backoff=(5, 5))
        peer = self.broker.accept()
        peer.expect("hello")
        peer.refuse("unauthorized")
        peer.close()
        with self.assertRaises(gloom.Unauthorized):
            jobs.submit("echo", wait=PATIENCE)
        with self.assertRaises(gloom.Unauthorized):
            jobs.connect(PATIENCE)

    def test_no_answer(self):
        jobs = self.submitter(token="x", dial_timeout=0.05, backoff=(5, 5))
        with self.assertRaisesRegex(gloom.NotConnected, "within 0.05 s"):
            jobs.connect()

    def test_ping_before_the_reply(self):
        jobs = self.submitter(heartbeat=60)
        peer = self.broker.accept()
        peer.expect("hello")
        peer.send({"action": "ping"}, {"ok": True})
        peer.expect("pong")
        jobs.connect(PATIENCE)


class Ends(SubmitterCase):
    def test_close(self):
        jobs = self.submitter()
        job = jobs.submit("echo")
        self.broker.accept().take()
        jobs.close()
        err = job.exception(PATIENCE)
        self.assertIsInstance(err, gloom.LostError)
        self.assertIsInstance(err.cause, gloom.ClosedError)
        for ask in (
            lambda: jobs.submit("echo"),
            lambda: jobs.cancel("a"),
            jobs.ping,
            jobs.connect,
        ):
            with self.assertRaises(gloom.ClosedError):
                ask()
        jobs.close()

    def test_leave(self):
        """Frames that the broker sends after this side is shut down are still read."""
        jobs = self.submitter()
        got, kept = (jobs.submit("echo", keep=60) for _ in range(2))
        plain = jobs.submit("echo")
        peer = self.broker.accept()
        for _ in range(3):
            peer.take()
        plain.ack(PATIENCE)
        left = threading.Thread(target=jobs.leave)
        left.start()
        self.assertTrue(peer.at_end())
        peer.send({"action": "ping"}, {"id": got.id, "body": "x" * 1_000_000})
        peer.close()
        self.assertEqual(got.result(PATIENCE), "x" * 1_000_000)
        for job in kept, plain:
            err = job.exception(PATIENCE)
            self.assertIsInstance(err, gloom.LostError)
            self.assertIsInstance(err.cause, gloom.ClosedError)
        left.join(PATIENCE)
        jobs.leave()

    def test_leave_does_not_wait_for_others(self):
        jobs = self.submitter()
        job = jobs.submit("echo")
        self.broker.accept().take()
        job.ack(PATIENCE)
        began = time.monotonic()
        jobs.leave(PATIENCE)
        self.assertLess(time.monotonic() - began, PATIENCE)
        self.assertIsInstance(job.exception(0), gloom.LostError)

    def test_leave_gives_up(self):
        jobs = self.submitter()
        job = jobs.submit("echo", keep=60)
        self.broker.accept().take()
        job.ack(PATIENCE)
        jobs.leave(0.05)  # the broker does not end
        self.assertIsInstance(job.exception(0), gloom.LostError)

    def test_close_from_a_callback(self):
        jobs = self.submitter()
        job = jobs.submit("echo")
        job.add_done_callback(lambda _: jobs.close())
        peer = self.broker.accept()
        peer.send({"id": peer.take(), "body": 1})
        self.assertEqual(job.result(PATIENCE), 1)
        self.assertTrue(peer.at_end())
        jobs.close()

    def test_close_wakes_those_who_wait(self):
        jobs = self.submitter(window=1)
        jobs.connect(PATIENCE)
        jobs.submit("echo")
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        waiting = pool.submit(jobs.submit, "echo")
        jobs.close()
        with self.assertRaises(gloom.ClosedError):
            waiting.result(PATIENCE)

    def test_close_during_do(self):
        jobs = self.submitter()
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        waiting = pool.submit(jobs.do, "echo")
        self.broker.accept().take()
        jobs.close()
        with self.assertRaises(gloom.LostError) as caught:
            waiting.result(PATIENCE)
        self.assertIsInstance(caught.exception.__cause__, gloom.ClosedError)

    def test_drain(self):
        jobs = self.submitter(window=1)  # so that closed() never submits
        job = jobs.submit("echo")
        peer = self.broker.accept()
        id = peer.take()
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        drained = pool.submit(jobs.drain)
        eventually(lambda: self.closed(jobs))
        self.assertFalse(drained.done())
        peer.send({"id": id, "body": 1})
        drained.result(PATIENCE)
        self.assertEqual(job.result(0), 1)
        self.assertTrue(peer.at_end())

    @staticmethod
    def closed(jobs):
        try:
            jobs.submit("echo", wait=0).cancel()
        except gloom.ClosedError:
            return True
        except gloom.GloomError:
            pass
        return False

    def test_result_too_late(self):
        jobs = self.submitter()
        job = jobs.submit("echo", id="a")
        with self.assertRaisesRegex(TimeoutError, "^no answer to job a after 0.01 s$"):
            job.result(0.01)
        self.broker.accept().take()
        jobs.close()
        with self.assertRaises(gloom.LostError):
            job.result(PATIENCE)

    def test_drain_too_long(self):
        jobs = self.submitter()
        job = jobs.submit("echo")
        self.broker.accept().take()
        with self.assertRaises(concurrent.futures.TimeoutError):
            jobs.drain(0.01)
        self.assertIsInstance(job.exception(PATIENCE), gloom.LostError)

    def test_forked(self):
        jobs = self.submitter()
        jobs.connect(PATIENCE)
        ours, theirs = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is what we are about
            child = os.fork()
        if child == 0:
            word = b"no error"
            try:
                jobs.submit("echo")
            except gloom.ClosedError:
                word = b"closed"
            finally:
                os.write(theirs, word)
                os._exit(0)
        os.close(theirs)
        with open(ours, "rb") as pipe:
            self.assertEqual(pipe.read(), b"closed")
        os.waitpid(child, 0)
        jobs.submit("echo")
        self.broker.accept().take()

    def test_forked_process_does_not_keep_the_connection(self):
        jobs = self.submitter()
        jobs.connect(PATIENCE)
        peer = self.broker.accept()
        ours, theirs = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is what we are about
            child = os.fork()
        if child == 0:
            os.close(theirs)
            os.read(ours, 1)  # until the test ends
            os._exit(0)
        os.close(ours)
        try:
            jobs.close()
            self.assertTrue(peer.at_end())
        finally:
            os.close(theirs)
            os.waitpid(child, 0)

    def test_settings(self):
        for settings in (
            {"window": 0},
            {"max_frame": 1023},
            {"dial_timeout": 0},
            {"backoff": (0, 1)},
            {"backoff": (2, 1)},
            {"heartbeat": 0.01},
            {"heartbeat": 3601},
            {"token": "\ud800"},
        ):
            with self.subTest(settings), self.assertRaises(ValueError):
                gloom.Submitter(self.broker.addr, **settings)
        for addr in ("", "host", "host:", "host:x", "h:65536", "unix:", "::1:99"):
            with self.subTest(addr), self.assertRaises(ValueError):
                gloom.Submitter(addr)


class Async(unittest.IsolatedAsyncioTestCase):
    """The parts of AsyncSubmitter that Submitter, and so the tests above, do not use."""

    def setUp(self):
        self.broker = FakeBroker()
        self.addCleanup(self.broker.__exit__)

    def submitter(self, *addrs, **settings):
        settings.setdefault("backoff", FAST)
        settings.setdefault("notify", lambda _: None)
        return gloom.AsyncSubmitter(*(addrs or (self.broker.addr,)), **settings)

    async def accept(self):
        return await asyncio.to_thread(self.broker.accept)

    async def take(self, peer):
        return await asyncio.to_thread(peer.take)

    async def within(self, work):
        return await asyncio.wait_for(work, PATIENCE)

    async def test_answers(self):
        told = []
        async with self.submitter() as jobs:
            pending = [
                await jobs.submit("echo", n, on_progress=told.append) for n in range(9)
            ]
            peer = await self.accept()
            ids = [await self.take(peer) for _ in pending]
            await self.within(pending[8].ack())
            for id in reversed(ids):
                peer.send({"id": id, "progress": id}, {"id": id, "body": id})
            got = [await self.within(job) for job in pending]
            self.assertEqual((got, told), (ids, ids[::-1]))
            self.assertEqual([await job for job in pending], ids)
            self.assertEqual(jobs.outstanding, 0)
            self.assertTrue(pending[0].done())
            self.assertEqual(pending[0].result(), ids[0])
            self.assertIsNone(pending[0].exception())

    async def test_forked_processes_use_different_ids(self):
        jobs = self.submitter()
        ids = []
        for _ in range(2):
            ours, theirs = os.pipe()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it is what we are about
                child = os.fork()
            if child == 0:
                try:
                    os.write(theirs, jobs._encode("echo")[0].encode())
                finally:
                    os._exit(0)
            os.close(theirs)
            with open(ours, "rb") as pipe:
                ids.append(pipe.read())
            os.waitpid(child, 0)
        self.assertNotEqual(ids[0], ids[1])

    async def test_refused_and_lost(self):
        async with self.submitter() as jobs:
            refused, lost = await jobs.submit("echo"), await jobs.submit("echo")
            ended = []
            lost.add_done_callback(ended.append)
            peer = await self.accept()
            message = await asyncio.to_thread(peer.expect, "submit")
            peer.refuse("id_exists", message["id"])
            await self.take(peer)
            with self.assertRaises(gloom.IDExists):
                await self.within(refused.ack())
            with self.assertRaises(gloom.IDExists):
                await self.within(refused)
            await self.within(lost.ack())
            peer.reset()
            with self.assertRaises(gloom.LostError) as caught:
                await self.within(lost)
            self.assertTrue(caught.exception.acked)
            self.assertEqual(ended, [lost])

    async def test_window(self):
        async with self.submitter(window=2) as jobs:
            for _ in range(2):
                await jobs.submit("echo")
            for wait in (0, 0.01):
                with self.assertRaises(gloom.WindowFull):
                    await jobs.submit("echo", wait=wait)
            waiting = [
                asyncio.ensure_future(jobs.submit("echo", n)) for n in range(3)
            ]
            peer = await self.accept()
            first, second = [await self.take(peer) for _ in range(2)]
            self.assertFalse(any(task.done() for task in waiting))
            waiting[0].cancel()
            peer.send({"id": first, "body": 1}, {"id": second, "body": 2})
            for task in waiting[1:]:
                await self.within(task)
            self.assertTrue(waiting[0].cancelled())
            self.assertEqual(jobs.outstanding, 2)

    async def test_broker_that_does_not_read(self):
        async with self.submitter() as jobs:
            peer = await self.accept()
            body = "x" * 1_000_000
            sent = 0
            with self.assertRaisesRegex(gloom.WindowFull, "too many bytes"):
                while sent < 100:
                    await jobs.submit("echo", body, wait=0.3)
                    sent += 1
            for _ in range(sent):
                await self.take(peer)
            await jobs.submit("echo", body, wait=PATIENCE)
            await self.take(peer)

    async def test_cancels(self):
        async with self.submitter() as jobs:
            job = await jobs.submit("echo", id="a")
            peer = await self.accept()
            await self.take(peer)
            reply = asyncio.ensure_future(jobs.cancel("a"))
            await asyncio.to_thread(peer.expect, "cancel")
            peer.ok("a")
            await self.within(reply)
            with self.assertRaises(gloom.Cancelled):
                await self.within(job)
            self.assertTrue(job.cancelled())
            self.assertFalse(job.cancel())
            reply = asyncio.ensure_future(jobs.cancel("a"))
            await asyncio.to_thread(peer.expect, "cancel")
            peer.refuse("unknown_id", "a")
            with self.assertRaises(gloom.UnknownID):
                await self.within(reply)
            reply = asyncio.ensure_future(jobs.ping())
            await asyncio.to_thread(peer.expect, "ping")
            peer.ok()
            await self.within(reply)
            with self.assertRaisesRegex(asyncio.TimeoutError, "after 0.01 s"):
                await jobs.ping(wait=0.01)

    async def test_do_cancels_what_it_gives_up(self):
        async with self.submitter() as jobs:
            peer = None
            for wait in (0.02, None):
                task = asyncio.ensure_future(jobs.do("echo", wait=wait))
                if peer is None:
                    peer = await self.accept()
                id = await self.take(peer)
                if wait is None:
                    task.cancel()
                message = await asyncio.to_thread(peer.expect, "cancel")
                self.assertEqual(message["id"], id)
                with self.assertRaises((asyncio.TimeoutError, asyncio.CancelledError)):
                    await task
                peer.ok(id)

    async def test_do_tells_the_time_that_it_was_given(self):
        async with self.submitter() as jobs:
            with mock.patch("gloom.submitter.time") as time:
                time.monotonic.side_effect = 0.0, 0.2
                with self.assertRaisesRegex(TimeoutError, "^timed out after 0.21 s$"):
                    await jobs.do("echo", wait=0.21)

    async def test_awaiting_task_is_not_the_job(self):
        async with self.submitter() as jobs:
            job = await jobs.submit("echo")
            task = asyncio.ensure_future(self.within(job))
            await asyncio.sleep(0)
            task.cancel()
            peer = await self.accept()
            peer.send({"id": await self.take(peer), "body": 1})
            self.assertEqual(await self.within(job), 1)

    async def test_none(self):
        with self.assertRaises(gloom.NotConnected):
            async with self.submitter(closed_port()):
                self.fail("connected")
        jobs = self.submitter(closed_port())
        with self.assertRaisesRegex(gloom.NotConnected, "within 0.01 s"):
            await jobs.submit("echo", wait=0.01)
        await jobs.close()
        with self.assertRaises(gloom.ClosedError):
            await jobs.submit("echo")

    async def test_leave(self):
        jobs = self.submitter()
        job = await jobs.submit("echo", keep=60)
        peer = await self.accept()
        id = await self.take(peer)
        await self.within(job.ack())
        left = asyncio.ensure_future(jobs.leave())
        await asyncio.get_running_loop().run_in_executor(None, peer.at_end)
        peer.send({"id": id, "body": 1})
        peer.close()
        await self.within(left)
        self.assertEqual(await job, 1)

    async def test_close_and_drain(self):
        jobs = self.submitter(window=1)
        job = await jobs.submit("echo")
        waiting = asyncio.ensure_future(jobs.submit("echo"))
        peer = await self.accept()
        id = await self.take(peer)
        drained = asyncio.ensure_future(jobs.drain())
        with self.assertRaises(gloom.ClosedError):
            await self.within(waiting)
        self.assertFalse(drained.done())
        peer.send({"id": id, "body": 1})
        await self.within(drained)
        self.assertEqual(await job, 1)
        jobs = self.submitter()
        job = await jobs.submit("echo")
        with self.assertRaises(asyncio.TimeoutError):
            await jobs.drain(0.01)
        with self.assertRaises(gloom.LostError):
            await self.within(job)


if __name__ == "__main__":
    unittest.main()
