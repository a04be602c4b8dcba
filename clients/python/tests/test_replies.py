"""Matching frames to requests and jobs, without a socket."""

import asyncio
import json
import random
import types
import unittest

import support  # noqa: F401  (finds the package)

from gloom import errors, wire
from gloom._options import Options
from gloom._session import Session
from gloom.pending import PendingJob

#: Codes that can end a job that the broker had accepted.
END_CODES = {code for code, ended in errors.KINDS if ended} - {errors.TakenOver.code}


def connection(send, freed):
    """A session that passes on what is sent, and has no socket."""

    async def make():
        link = Session(Options([], "", 1), "h:1", types.SimpleNamespace(release=freed))
        link.send = send
        return link

    return asyncio.run(make())


class Job(PendingJob):
    def __init__(self, id, silent=False, detached=False):
        fields = {"ack": False if silent else None, "detach": detached or None}
        frame = wire.request("submit", id=id, type="t", body=b"1", **fields)
        options = {"ack": not silent, "detach": detached}
        super().__init__(None, id, "t", frame, options, False)
        self.events = []

    def _accepted(self):
        self.events.append("accepted")

    def _progressed(self, message):
        self.events.append(("progress", message.get("progress")))

    def _answered(self, message):
        self.events.append(("answer", message.get("body")))

    def _failed(self, error):
        self.events.append(error)

    @property
    def error(self):
        return self.events[-1]


class RepliesCase(unittest.TestCase):
    def setUp(self):
        self.sent = []
        self.freed = 0
        self.anew()

    def anew(self):
        self.link = connection(self.send, self.free)

    def send(self, frame):
        self.sent.append(json.loads(frame[4:]))

    def free(self):
        self.freed += 1

    def submit(self, id, **how):
        job = Job(id, **how)
        self.link.submit(job)
        return job

    def cancel(self, id):
        replies = []
        self.link.request("cancel", id, {}, replies.append)
        return replies

    def get(self, **message):
        self.link.receive(wire.read(json.dumps(message).encode()))

    def refuse(self, code, id=None):
        self.get(error=code, reason="why", id=id)

    def check_over(self, freed):
        self.assertEqual(self.freed, freed)
        self.assertTrue(self.link.idle)


class Acked(RepliesCase):
    def test_ack_then_answer(self):
        job = self.submit("a")
        self.assertFalse(job.acked)
        self.get(ok=True, id="a")
        self.assertTrue(job.acked)
        self.get(id="a", progress=1)
        self.get(id="a", body="x")
        self.assertEqual(job.events, ["accepted", ("progress", 1), ("answer", "x")])
        self.check_over(1)

    def test_any_order_of_answers(self):
        jobs = [self.submit(id) for id in "abc"]
        for id in "abc":
            self.get(ok=True, id=id)
        for id in "cab":
            self.get(id=id, body=id)
        self.assertEqual([job.events[-1][1] for job in jobs], list("abc"))
        self.check_over(3)

    def test_answer_between_acks(self):
        a, b = self.submit("a"), self.submit("b")
        self.get(ok=True, id="a")
        self.get(id="a", body=1)
        self.get(ok=True, id="b")
        self.refuse("job_failed", "b")
        self.assertEqual(a.events[-1], ("answer", 1))
        self.assertIsInstance(b.error, errors.JobFailed)
        self.check_over(2)

    def test_ended_with_an_unknown_code(self):
        a = self.submit("a")
        self.get(ok=True, id="a")
        self.refuse("retired", "a")
        self.assertIs(type(a.error), errors.JobError)
        self.assertEqual(a.error.code, "retired")
        self.check_over(1)

    def test_refused(self):
        for code in ("id_exists", "overloaded", "forbidden", "invalid_value"):
            job = self.submit("a")
            self.refuse(code, "a")
            self.assertIsInstance(job.error, errors.RefusedError)
            self.assertEqual((job.error.code, job.acked), (code, False))
        self.check_over(4)

    def test_refused_without_an_id(self):
        a, b = self.submit("a"), self.submit("b")
        self.refuse("invalid_type")
        self.assertIsInstance(a.error, errors.InvalidType)
        self.get(ok=True, id="b")
        self.assertTrue(b.acked)

    def test_draining_refuses_or_ends(self):
        a, b = self.submit("a"), self.submit("b")
        self.get(ok=True, id="a")
        self.assertFalse(self.link.over.is_set())
        self.refuse("draining", "b")
        self.refuse("draining", "a")
        self.assertIsInstance(b.error, errors.RefusedError)
        self.assertIsInstance(a.error, errors.JobError)
        for job in a, b:
            self.assertIsInstance(job.error, errors.Draining)
        self.assertTrue(self.link.over.is_set())
        self.check_over(2)

    def test_end_of_one_while_another_is_due(self):
        a = self.submit("a")
        self.get(ok=True, id="a")
        b = self.submit("b")
        self.refuse("expired", "a")
        self.assertIsInstance(a.error, errors.Expired)
        self.get(ok=True, id="b")
        self.assertTrue(b.acked)

    def test_unknown_code_refuses(self):
        job = self.submit("a")
        self.refuse("on_strike", "a")
        self.assertIs(type(job.error), errors.RefusedError)

    def test_id_pending_here(self):
        first, second = self.submit("a"), self.submit("a")
        self.assertIsInstance(second.error, errors.IDExists)
        self.assertEqual((len(self.sent), self.freed), (1, 1))
        self.get(ok=True, id="a")
        self.get(id="a", body=1)
        self.assertEqual(first.events[-1], ("answer", 1))
        third = self.submit("a")
        self.get(ok=True, id="a")
        self.assertTrue(third.acked)

    def test_detached_ends_with_its_ack(self):
        job = self.submit("a", detached=True)
        self.get(ok=True, id="a")
        self.assertEqual(job.events, ["accepted"])
        self.check_over(1)


class Silent(RepliesCase):
    def test_answer_confirms_those_before(self):
        a, b, c = (self.submit(id, silent=True) for id in "abc")
        self.get(id="b", body=1)
        self.assertEqual((a.acked, b.acked, c.acked), (True, True, False))
        self.get(id="c", body=1)
        self.get(id="a", body=1)
        self.check_over(3)

    def test_progress_confirms(self):
        job = self.submit("a", silent=True)
        self.get(id="a", progress=1)
        self.assertTrue(job.acked)
        self.get(id="a", progress=2)
        self.refuse("job_failed", "a")
        self.assertIsInstance(job.error, errors.JobFailed)
        self.check_over(1)

    def test_reply_to_another_confirms(self):
        a, b = self.submit("a", silent=True), self.submit("b")
        self.get(ok=True, id="b")
        self.assertTrue(a.acked and b.acked)

    def test_refused(self):
        a, b, c = (self.submit(id, silent=True) for id in "abc")
        self.refuse("id_exists", "b")
        self.assertIsInstance(b.error, errors.IDExists)
        self.assertEqual((a.acked, c.acked), (True, False))
        for id in "ac":
            self.get(id=id, body=1)
        self.check_over(3)

    def test_ended_before_anything_confirmed_it(self):
        job = self.submit("a", silent=True)
        self.refuse("job_failed", "a")
        self.assertIsInstance(job.error, errors.JobFailed)
        self.check_over(1)

    def test_detached_is_confirmed_by_a_ping(self):
        a, b = (self.submit(id, silent=True, detached=True) for id in "ab")
        self.assertEqual(a.events, [])
        self.link._flush()
        self.link._flush()
        self.assertEqual([m["action"] for m in self.sent], ["submit", "submit", "ping"])
        self.refuse("id_exists", "b")
        self.get(ok=True)
        self.assertEqual(a.events, ["accepted"])
        self.assertIsInstance(b.error, errors.IDExists)
        self.check_over(2)

    def test_no_ping_where_something_else_replies(self):
        a = self.submit("a", silent=True, detached=True)
        self.submit("b")
        self.link._flush()
        self.submit("c", silent=True)
        self.link._flush()
        self.assertEqual(len(self.sent), 3)
        self.get(ok=True, id="b")
        self.assertEqual(a.events, ["accepted"])


class Cancels(RepliesCase):
    def test_ok(self):
        job = self.submit("a")
        self.get(ok=True, id="a")
        replies = self.cancel("a")
        self.get(ok=True, id="a")
        self.assertEqual(replies, [None])
        self.assertIsInstance(job.error, errors.Cancelled)
        self.check_over(1)

    def test_answer_wins(self):
        job = self.submit("a")
        self.get(ok=True, id="a")
        replies = self.cancel("a")
        self.get(id="a", body=1)
        self.refuse("unknown_id", "a")
        self.assertEqual(job.events[-1], ("answer", 1))
        self.assertIsInstance(replies[0], errors.UnknownID)
        self.check_over(1)

    def test_end_wins(self):
        for code in sorted(END_CODES):
            job = self.submit("a")
            self.get(ok=True, id="a")
            replies = self.cancel("a")
            self.refuse(code, "a")
            self.assertIsInstance(job.error, errors.JobError)
            self.assertEqual(replies, [])
            self.refuse("unknown_id", "a")
            self.assertIsInstance(replies[0], errors.UnknownID)
        self.check_over(4)

    def test_forbidden_leaves_the_job(self):
        job = self.submit("a")
        self.get(ok=True, id="a")
        replies = self.cancel("a")
        self.refuse("forbidden", "a")
        self.assertIsInstance(replies[0], errors.Forbidden)
        self.get(id="a", body=1)
        self.assertEqual(job.events[-1], ("answer", 1))

    def test_of_a_silent_job(self):
        job = self.submit("a", silent=True)
        replies = self.cancel("a")
        self.refuse("forbidden", "a")
        self.assertIsInstance(job.error, errors.Forbidden)
        self.assertEqual(replies, [])
        self.refuse("forbidden", "a")
        self.assertIsInstance(replies[0], errors.Forbidden)
        self.check_over(1)

    def test_of_a_silent_job_that_was_answered(self):
        job = self.submit("a", silent=True)
        replies = self.cancel("a")
        self.get(id="a", body=1)
        self.refuse("unknown_id", "a")
        self.assertEqual(job.events[-1], ("answer", 1))
        self.assertIsInstance(replies[0], errors.UnknownID)

    def test_cancel_reply_precedes_ack_of_new_job_with_same_id(self):
        replies = self.cancel("a")
        job = self.submit("a")
        self.get(ok=True, id="a")
        self.assertEqual((replies, job.events), ([None], []))
        self.get(ok=True, id="a")
        self.assertTrue(job.acked)

    def test_refused_before_a_silent_job_of_its_id(self):
        replies = self.cancel("a")
        job = self.submit("a", silent=True)
        self.refuse("forbidden", "a")
        self.assertIsInstance(replies[0], errors.Forbidden)
        self.refuse("overloaded", "a")
        self.assertIsInstance(job.error, errors.Overloaded)

    def test_twice(self):
        job = self.submit("a")
        self.get(ok=True, id="a")
        first, second = self.cancel("a"), self.cancel("a")
        self.get(ok=True, id="a")
        self.refuse("unknown_id", "a")
        self.assertEqual(first, [None])
        self.assertIsInstance(second[0], errors.UnknownID)
        self.assertEqual(len(job.events), 2)


class Connection(RepliesCase):
    def test_lost(self):
        a, b, c = self.submit("a"), self.submit("b"), self.submit("c", silent=True)
        self.get(ok=True, id="a")
        replies = self.cancel("a")
        self.link.unsent = [c.frame]
        self.link.lose(ConnectionResetError("reset"))
        self.assertEqual(
            [(j.error.id, j.error.acked, j.error.sent) for j in (a, b, c)],
            [("a", True, True), ("b", False, True), ("c", False, False)],
        )
        self.assertIsInstance(replies[0], errors.LostError)
        self.check_over(3)

    def test_kept(self):
        a, b, c = self.submit("a"), self.submit("b"), self.submit("c")
        for job in a, b, c:
            job.kept = True
        self.get(ok=True, id="a")
        reset = ConnectionResetError("reset")
        self.link.unsent = [c.frame]
        self.link.lose(reset, keep=True)
        self.assertEqual(list(self.link.jobs.values()), [a, b, c])
        self.assertEqual(self.freed, 0)
        last = self.link
        self.anew()
        self.sent.clear()
        self.link.take_over(last)
        self.assertTrue(last.idle)
        self.assertEqual(
            [(m["action"], m["id"]) for m in self.sent],
            [("attach", "a"), ("attach", "b"), ("submit", "c")],
        )
        self.get(ok=True, id="a", state="ended")
        self.get(id="a", body=1)
        self.refuse("unknown_id", "b")
        self.get(ok=True, id="c")
        self.refuse("taken_over", "c")
        self.assertEqual(a.events[-1], ("answer", 1))
        self.assertIsInstance(b.error.cause, errors.UnknownID)
        self.assertIsInstance(c.error, errors.TakenOver)
        self.check_over(3)

    def test_what_is_about_the_connection(self):
        for code in ("overloaded", "unauthorized"):
            self.submit(code)
            with self.assertRaises(errors.RefusedError):
                self.refuse(code)
        with self.assertRaises(errors.RefusedError):
            self.anew()
            self.get(error="invalid_json", reason="x")

    def test_size_error_is_why_it_closes(self):
        a, b = self.submit("a"), self.submit("b")
        self.refuse("size_error")
        self.link.connection_lost(ConnectionResetError("closed"))
        self.link.lose(self.link.lost.result())
        self.assertIsInstance(a.error, errors.SizeError)
        self.assertIsInstance(b.error.cause, errors.SizeError)

    def test_against_the_protocol(self):
        self.submit("a")
        self.submit("b", silent=True)
        for message in (
            {"ok": True, "id": "b"},
            {"id": "a", "body": 1},
            {"id": "a", "progress": 1},
            {"id": "b", "body": 1},
        ):
            self.anew()
            self.submit("a")
            self.submit("b", silent=True)
            with self.subTest(message), self.assertRaises(errors.ProtocolError):
                self.get(**message)
        self.anew()
        with self.assertRaises(errors.ProtocolError):
            self.get(ok=True)

    def test_about_nothing_of_ours(self):
        self.get(id="x", body=1)
        self.get(id="x", progress=1)
        self.get(action="dance")
        self.refuse("job_failed", "x")
        self.check_over(0)

    def test_pings(self):
        replies = []
        self.link.request("ping", None, {}, replies.append)
        self.link.request("ping", None, {}, replies.append)
        self.get(ok=True)
        self.refuse("unknown_action")
        self.assertIsNone(replies[0])
        self.assertIsInstance(replies[1], errors.UnknownAction)


class ModelBroker:
    """A broker that follows the protocol and is otherwise random.

    Notes what it does to each submitted job, to be compared with what the
    client makes of the frames.
    """

    REFUSALS = ("overloaded", "forbidden", "invalid_value")
    #: The id of another client's detached job, of a type that our token forbids.
    FOREIGN = "g"

    def __init__(self, rng):
        self.rng = rng
        self.requests = []  # (message, job) not yet handled
        self.running = {}  # id -> job of this connection
        self.held = set()  # ids of unwanted and of detached jobs
        self.out = []  # frames on their way to the client
        self.truth = {}  # job -> what became of it

    def handle(self):
        message, job = self.requests.pop(0)
        action, id = message["action"], message.get("id")
        if action == "submit":
            self.submit(message, job)
        elif action == "ping":
            self.out.append({"ok": True})
        elif id in self.running:
            self.truth[self.running.pop(id)] = "cancelled"
            if self.rng.random() < 0.5:
                self.held.add(id)
            self.out.append({"ok": True, "id": id})
        elif id == self.FOREIGN:
            self.error("forbidden", id)
        else:
            self.error("unknown_id", id)

    def submit(self, message, job):
        id = message["id"]
        if id in self.running or id in self.held or id == self.FOREIGN:
            code = "id_exists"
        elif self.rng.random() < 0.2:
            code = self.rng.choice(self.REFUSALS)
        else:
            if message.get("ack", True):
                self.out.append({"ok": True, "id": id})
            if message.get("detach"):
                self.held.add(id)
                self.truth[job] = "accepted"
            else:
                self.running[id] = job
            return
        self.truth[job] = code
        self.error(code, id)

    def work(self):
        """Send the progress or the end of an accepted job."""
        if self.held and self.rng.random() < 0.3:
            self.held.remove(self.rng.choice(sorted(self.held)))
        if not self.running:
            return
        id = self.rng.choice(sorted(self.running))
        what = self.rng.choice(("progress", "answer", "answer", "end"))
        if what == "progress":
            self.out.append({"id": id, "progress": 1})
        elif what == "answer":
            self.truth[self.running.pop(id)] = "answer"
            self.out.append({"id": id, "body": 1})
        else:
            code = self.rng.choice(sorted(END_CODES))
            self.truth[self.running.pop(id)] = code
            self.error(code, id)

    def error(self, code, id):
        self.out.append({"error": code, "reason": "why", "id": id})


class Random(unittest.TestCase):
    """Whatever a broker does within the protocol, and however late its frames arrive,
    each job ends once, in the same way as at the broker."""

    def test_against_a_model(self):
        first = random.randrange(2**32)
        for seed in range(first, first + 400):
            with self.subTest(seed=seed):
                self.run_one(random.Random(seed))

    def run_one(self, rng):
        broker = ModelBroker(rng)
        freed = []
        jobs = []
        link = connection(
            lambda frame: broker.requests.append(self.sent(frame, jobs)),
            lambda: freed.append(1),
        )
        cancels, asked = [], 0
        for step in range(300):
            choice = rng.random() if step < 200 else 0.5 + rng.random() / 2
            if choice < 0.25:
                job = Job(rng.choice("abcdefg"), rng.random() < 0.4, rng.random() < 0.3)
                jobs.append(job)
                link.submit(job)
                if rng.random() < 0.7:
                    link._flush()
            elif choice < 0.35:
                id = rng.choice("abcdefg")
                link.request("cancel", id, {}, cancels.append)
                asked += 1
            elif choice < 0.4:
                link.request("ping", None, {}, cancels.append)
                asked += 1
            elif choice < 0.6:
                if broker.requests:
                    broker.handle()
            elif choice < 0.75:
                broker.work()
            elif broker.out:
                self.deliver(link, broker)
        link._flush()
        while broker.requests:
            broker.handle()
        while broker.running:
            broker.work()
        while broker.out:
            self.deliver(link, broker)
        self.assertEqual(len(cancels), asked)
        self.assertEqual(len(freed), len(jobs))
        self.assertTrue(link.idle)
        for job in jobs:
            self.assertEqual(self.told(job), broker.truth.get(job, "id_exists"))

    @staticmethod
    def sent(frame, jobs):
        """What a frame says, and the job that it submits."""
        job = next((job for job in jobs if job.frame is frame), None)
        return json.loads(frame[4:]), job

    @staticmethod
    def deliver(link, broker):
        link.receive(wire.read(json.dumps(broker.out.pop(0)).encode()))

    def told(self, job):
        ends = []
        for event in job.events:
            if isinstance(event, errors.BrokerError):
                ends.append(event.code)
            elif event == ("answer", 1):
                ends.append("answer")
            elif event == "accepted" and job.detached:
                ends.append("accepted")
        self.assertEqual(len(ends), 1, (job.id, job.events))
        self.assertLessEqual(job.events.count("accepted"), 1)
        return ends[0]


class CutBroker:
    """A broker whose connections are cut: what is under way in either direction is lost,
    except submits that come late and outcomes that had not been written."""

    def __init__(self, rng):
        self.rng = rng
        self.requests = []  # what the client has sent on the current connection
        self.late = []  # what it had sent on lost connections
        self.out = []  # what is under way to the client
        self.bound = {}  # id -> kept, of the jobs that have not ended
        self.here = set()  # ids of those whose frames the connection gets
        self.kept = {}  # id -> whether its last job was a kept one
        self.ended = {}  # id -> last frame, of those whose outcome is kept

    def cut(self):
        self.late += [r for r in self.requests if self.rng.random() < 0.3]
        self.requests.clear()
        for frame in self.out:
            id = frame.get("id")
            has_ended = "body" in frame or frame.get("error") in END_CODES
            if has_ended and self.kept.get(id) and self.rng.random() < 0.5:
                self.ended[id] = frame
        self.out.clear()
        self.bound = {id: kept for id, kept in self.bound.items() if kept}
        self.here.clear()

    def handle(self):
        requests = self.late if self.late and self.rng.random() < 0.5 else self.requests
        if not requests:
            return
        message = requests.pop(0)
        reply = self.reply(message, requests is self.requests)
        if requests is self.requests:
            self.out += reply

    def reply(self, message, stands):
        action, id = message["action"], message.get("id")
        ok, unknown = {"ok": True, "id": id}, self.error("unknown_id", id)
        if action == "submit":
            if id in self.bound or id in self.ended:
                return [self.error("id_exists", id)]
            if self.rng.random() < 0.05:
                return [self.error("overloaded", id)]
            if stands or "keep_ms" in message:
                self.bound[id] = self.kept[id] = "keep_ms" in message
                if stands:
                    self.here.add(id)
            return [ok] if message.get("ack", True) else []
        if action == "ping":
            return [{"ok": True}]
        if action == "cancel":
            if id in self.here and not stands:
                return []  # it is another connection's now, and goes on
            gone = self.bound.pop(id, None) is not None
            return [ok if gone or self.ended.pop(id, None) else unknown]
        if id in self.ended:
            return [ok, self.ended.pop(id)]
        if self.bound.get(id) and stands:
            self.here.add(id)
        return [ok if self.bound.get(id) else unknown]

    def work(self):
        if not self.bound:
            return
        id = self.rng.choice(sorted(self.bound))
        here = id in self.here
        if self.rng.random() < 0.3:
            self.out += [{"id": id, "progress": 1}] * here
            return
        del self.bound[id]
        self.here.discard(id)
        end = {"id": id, "body": 1}, self.error("job_failed", id)
        if here:
            self.out.append(self.rng.choice(end))
        else:
            self.ended[id] = self.rng.choice(end)

    @staticmethod
    def error(code, id):
        return {"error": code, "reason": "why", "id": id}


class Cuts(unittest.TestCase):
    """However often the connection is cut, each job ends once, and one that may run
    twice is not lost."""

    def test_at_random(self):
        first = random.randrange(2**32)
        for seed in range(first, first + 200):
            with self.subTest(seed=seed):
                self.run_one(random.Random(seed))

    def connect(self, broker, freed):
        return connection(
            lambda frame: broker.requests.append(json.loads(frame[4:])),
            lambda: freed.append(1),
        )

    def run_one(self, rng):
        broker, freed, jobs, asked, replies = CutBroker(rng), [], [], 0, []
        link = self.connect(broker, freed)
        for step in range(400):
            choice = rng.random()
            if choice < 0.2 and step < 300:
                job = Job(f"{rng.choice('ab')}{step // 8}", rng.random() < 0.3)
                job.kept, job.again = rng.choice(((0, 0), (1, 0), (1, 1)))
                fields = {"keep_ms": 1000 if job.kept else None}
                fields["ack"] = False if job.silent else None
                job.frame = wire.request("submit", id=job.id, body=b"1", **fields)
                jobs.append(job)
                link.submit(job)
            elif choice < 0.23 and jobs and step < 300:
                link.request("cancel", rng.choice(jobs).id, {}, replies.append)
                asked += 1
            elif choice < 0.25 and step < 350:
                reset = ConnectionResetError("cut")
                broker.cut()
                link.lose(reset, keep=True)
                last, link = link, self.connect(broker, freed)
                link.take_over(last)
            elif choice < 0.5:
                broker.handle()
            elif choice < 0.7:
                broker.work()
            elif broker.out:
                Random.deliver(link, broker)
        link.request("ping", None, {}, replies.append)
        while broker.requests or broker.late or broker.bound or broker.out:
            broker.handle()
            broker.work()
            while broker.out:
                Random.deliver(link, broker)
        self.assertEqual(len(replies), asked + 1)
        self.assertTrue(link.idle)
        self.assertEqual(len(freed), len(jobs))
        for job in jobs:
            ends = [
                event
                for event in job.events
                if isinstance(event, Exception) or event == ("answer", 1)
            ]
            self.assertEqual(len(ends), 1, (job.id, job.events))
            if job.kept and job.again and isinstance(ends[0], errors.LostError):
                # The second submit was refused with id_exists because of the first submit, whose
                # job then ended unseen.
                self.assertIsInstance(ends[0].cause, errors.UnknownID)


if __name__ == "__main__":
    unittest.main()
