"""Frames and messages, against the golden frames of the repository."""

import asyncio
import json
import pickle
import random
import unittest
from decimal import Decimal
from unittest import mock

from support import golden, payload_of

from gloom import ProtocolError, RawJSON, errors, wire
from gloom._link import Link
from gloom._options import Options
from gloom.body import MAX_DEPTH, check_depth, encode_body


class Replies(unittest.TestCase):
    """What the broker sends."""

    def test_golden(self):
        for case in golden("replies.json"):
            with self.subTest(case["name"]):
                message = wire.read(payload_of(case))
                self.assertEqual(self.meaning(message), case["meaning"])

    @staticmethod
    def meaning(message):
        said = {"kind": message.kind, "id": message.id}
        said["type"] = message.get("type")
        key = "progress" if message.kind == wire.PROGRESS else "body"
        if key in message.values:
            said["body"] = message.raw(key).data.decode()
        if message.kind == wire.ERROR:
            said["code"] = message.get("error")
            said["reason"] = message.get("reason")
            said["cause"] = message.get("cause")
            said["delay_ms"] = message.get("delay_ms")
        said["server"] = message.get("server")
        said["state"] = message.get("state")
        if "headers" in message.values:
            said["headers"] = message.raw("headers").data.decode()
        for limit in ("max_frame", "max_frame_out", "max_id", "max_prefetch", "max_types"):
            said[limit] = wire.limit(message, limit)
        return {key: value for key, value in said.items() if value is not None}

    def test_refused(self):
        for text in (
            "",
            " ",
            "[]",
            "1",
            '"ok"',
            "null",
            "{",
            '{"ok":true',
            '{"ok":true}}',
            '{"ok":true} x',
            '{"ok":true,}',
            '{"ok" true}',
            "{'ok':true}",
            '{"ok":True}',
            '{"ok":"true"}',
            '{"ok":1}',
            '{"ok":true,"id":5}',
            '{"id":5,"body":1}',
            '{"id":null,"body":1}',
            '{"id":"a","body":NaN}',
            '{"id":"a","body":-Infinity}',
            '{"id":"a","body":01}',
            '{"id":"a","body":1.}',
            '{"id":"a","body":"\t"}',
            '{"id":"a","body":"\\x41"}',
            '\ufeff{"ok":true}',
            '{"ok":true}\u00a0',
            '{"error":5,"reason":"x"}',
            '{"error":"id_exists"}',
            '{"action":"job","id":"a","type":"t"}',
            '{"action":"job","id":"a","body":1}',
            '{"action":"job","type":"t","body":1}',
            '{"action":"cancel"}',
        ):
            with self.subTest(text):
                with self.assertRaises(ProtocolError):
                    wire.read(text.encode())

    def test_bad_utf8(self):
        for data in (b'{"id":"\xff","body":1}', b'{"id":"a","body":"\xed\xa0\x80"}'):
            with self.assertRaisesRegex(ProtocolError, "UTF-8"):
                wire.read(data)

    def test_of_later_protocols(self):
        for text in ('{"action":"dance"}', '{"id":"a"}', "{}", '{"action":5}'):
            with self.subTest(text):
                self.assertIsNone(wire.read(text.encode()).kind)

    def test_last_of_equal_keys_counts(self):
        message = wire.read(b'{"id":"a","body":1,"\\u0062ody":2,"BODY":3}')
        self.assertEqual(message.get("body"), 2)
        self.assertEqual(message.raw("body").data, b"2")

    def test_numbers_too_long_for_int(self):
        digits = "1" * 5000
        message = wire.read(f'{{"id":"a","body":[{digits}]}}'.encode())
        self.assertEqual(message.raw("body").data, f"[{digits}]".encode())
        (value,) = message.get("body")
        self.assertIn(value, (Decimal(digits),))

    def test_numbers_too_large_for_float(self):
        large = "1" * 400 + ".5"
        beyond = "1e" + "9" * 19  # what Decimal cannot hold either
        text = f"[1e999999,-1e999,{large},{beyond},1e308,-1e-999]"
        kept = [Decimal("1e999999"), Decimal("-1e999"), Decimal(large)]
        want = [*kept, RawJSON(beyond), 1e308, 0.0]
        message = wire.read(f'{{"id":"a","body":{text}}}'.encode())
        self.assertEqual(message.get("body"), want)
        self.assertEqual(RawJSON(text).value(), want)
        deep = MAX_DEPTH - 2
        value = RawJSON("[" * deep + "1e999" + "]" * deep).value()
        for _ in range(deep):
            (value,) = value
        self.assertEqual(value, Decimal("1e999"))

    def test_nested_deeper_than_the_usual_decoder_goes(self):
        levels = MAX_DEPTH - 1
        text = '{"a": [' * (levels // 2) + ' 1.5 , "x"' + " ] }" * (levels // 2)
        message = wire.read(('{"id":"a","body":%s}' % text).encode())
        self.assertEqual(message.raw("body").data, text.encode())
        value = message.get("body")
        for _ in range(levels // 2):
            (value,) = [value["a"]] if len(value["a"]) == 2 else value["a"]
        self.assertEqual(value, [1.5, "x"])
        text = '{"id":"a","body":' + "[" * 100000 + "]" * 100000 + "}"
        with self.assertRaisesRegex(ProtocolError, "deeper"):
            wire.read(text.encode())

    def test_deep_values(self):
        text = b'{"a":[' * 511 + b"1" + b"]}" * 511
        value = RawJSON(text).value()
        self.assertEqual(encode_body(value), text)


class Bare:
    """A message of any payload, JSON or not."""

    kind = None

    def __init__(self, payload):
        self.payload = payload


class Streams(unittest.TestCase):
    """Splitting bytes into frames."""

    @staticmethod
    def cut(pieces, limit):
        reader, payloads, error = wire.FrameReader(limit), [], None
        for piece in pieces:
            try:
                if error is None:
                    payloads.extend(reader.feed(piece))
            except errors.FrameTooLarge as err:
                error = err
        return payloads, error, reader

    def test_golden_cut_everywhere(self):
        for case in golden("streams.json"):
            data = bytes.fromhex(case["hex"])
            want = [text.encode() for text in case["payloads"]]
            cuts = [[data], [data[i : i + 1] for i in range(len(data))]]
            if len(data) <= 4096:
                cuts += [[data[:i], data[i:]] for i in range(len(data))]
            for pieces in cuts:
                with self.subTest(case["name"], pieces=len(pieces)):
                    got, error, reader = self.cut(pieces, case["max_frame"])
                    self.assertEqual(got, want)
                    self.assertEqual(error is not None, "error" in case)
                    if error is None:
                        rest = len(data) - sum(4 + len(p) for p in got)
                        self.assertEqual(rest, case.get("rest", 0))
                        self.assertEqual(reader.partial, rest > 0)

    def test_golden_through_a_connection(self):
        """The same bytes, as they come to a submitter and to a worker."""

        async def connection(case, pieces):
            link, payloads = Link(Options([], "", 1), "h:1"), []
            link.receive = payloads.append
            link._reader.max_frame = case["max_frame"]
            with mock.patch("gloom.wire.read", Bare):
                for piece in pieces:
                    link.data_received(piece)
            link.connection_lost(None)
            return [message.payload for message in payloads], await link.lost

        for case in golden("streams.json"):
            data = bytes.fromhex(case["hex"])
            for pieces in [data], [data[i : i + 1] for i in range(len(data))]:
                with self.subTest(case["name"], pieces=len(pieces)):
                    got, cause = asyncio.run(connection(case, pieces))
                    self.assertEqual(got, [text.encode() for text in case["payloads"]])
                    too_large = isinstance(cause, errors.FrameTooLarge)
                    self.assertEqual(too_large, "error" in case)
                    if not too_large:
                        torn = "middle of a frame" in str(cause)
                        self.assertEqual(torn, case.get("rest", 0) > 0)

    def test_random_pieces(self):
        seed = random.randrange(2**32)
        rng = random.Random(seed)
        want = [rng.randbytes(rng.choice((0, 1, 5, 300))) for _ in range(200)]
        data = b"".join(wire.HEADER.pack(len(payload)) + payload for payload in want)
        pieces = []
        while data:
            size = rng.choice((1, 2, 3, 5, 70, 1000))
            pieces.append(data[:size])
            data = data[size:]
        got, error, _ = self.cut(pieces, 300)
        self.assertEqual((got, error), (want, None), f"seed {seed}")

    def test_length_is_refused_when_announced(self):
        reader = wire.FrameReader(10)
        with self.assertRaisesRegex(errors.FrameTooLarge, "11 bytes, at most 10"):
            list(reader.feed(b"\x00\x00\x00\x0b"))


class Requests(unittest.TestCase):
    """Our frames have the intended meaning for the broker."""

    def test_golden(self):
        tried = 0
        for name in ("submitter.json", "worker.json", "both.json"):
            for case in golden(name):
                meaning = case.get("meaning")
                if case["direction"] != "request" or meaning is None:
                    continue
                with self.subTest(case["name"]):
                    tried += 1
                    frame = self.encode(dict(meaning))
                    (size,) = wire.HEADER.unpack(frame[:4])
                    self.assertEqual(size, len(frame) - 4)
                    self.assertEqual(self.said(frame[4:]), meaning)
        self.assertGreater(tried, 40)

    @staticmethod
    def encode(meaning):
        for key in "body", "headers":  # of a join they are only asked for
            if isinstance(meaning.get(key), str):
                meaning[key] = RawJSON(meaning[key]).data
        return wire.request(meaning.pop("verb"), **meaning)

    @staticmethod
    def said(payload):
        message = wire.read(payload)
        said = dict(message.values)
        said["verb"] = said.pop("action")
        for key in "body", "headers":
            if key in said and (key, said[key]) != ("headers", True):
                said[key] = message.raw(key).data.decode()
        return said

    def test_bodies(self):
        for value, data in (
            ({"b": [1, 2.5, None, True], "a": "é\n"}, '{"b":[1,2.5,null,true],"a":"é\\n"}'),
            ("\ud800", '"\\ud800"'),
            (2**70, str(2**70)),
            (RawJSON(b' {"z" : 1E400} '), ' {"z" : 1E400} '),
            (None, "null"),
        ):
            self.assertEqual(encode_body(value).decode(), data)

    def test_bodies_refused(self):
        loop = []
        loop.append(loop)
        deep = []
        for _ in range(MAX_DEPTH):
            deep = [deep]
        for value, kind in (
            (object(), TypeError),
            ({1, 2}, TypeError),
            (b"x", TypeError),
            (float("nan"), ValueError),
            (float("inf"), ValueError),
            (loop, ValueError),
            (deep, ValueError),
        ):
            with self.assertRaises(kind):
                encode_body(value)

    def test_depth(self):
        most = MAX_DEPTH - 1
        check_depth(b"[" * most + b"]" * most)
        check_depth(b'["' + b"[" * 2 * most + b'\\""]')
        check_depth(b"[" + b",".join([b"{}"] * 2 * most) + b"]")
        with self.assertRaisesRegex(ValueError, f"deeper than {most}"):
            check_depth(b'["\\"",' + b"[" * most + b"]" * (most + 1))

    def test_names(self):
        self.assertEqual(wire.check_name("id", "é" * 512), "é" * 512)
        for value, kind in (
            ("", ValueError),
            ("é" * 513, ValueError),
            ("\udc00", ValueError),
            (5, TypeError),
            (None, TypeError),
            (b"a", TypeError),
        ):
            with self.assertRaises(kind):
                wire.check_name("id", value)


class Raw(unittest.TestCase):
    def test_verbatim(self):
        data = b'{"b":1.50,"a":[1e400,"\\u00e9\\/"]}'
        self.assertEqual(bytes(RawJSON(data)), data)
        self.assertEqual(RawJSON(data).value()["b"], 1.5)
        self.assertEqual(RawJSON(data), RawJSON(data.decode()))
        self.assertEqual(pickle.loads(pickle.dumps(RawJSON(data))), RawJSON(data))
        self.assertEqual(len({RawJSON(b"1"), RawJSON("1"), RawJSON(b"2")}), 2)

    def test_refused(self):
        for data in (
            b"",
            b" ",
            b"1 2",
            b'1,"priority":5',
            b"1}",
            b"NaN",
            b'"\xff"',
            b"[1,]",
            b"[" * MAX_DEPTH + b"]" * MAX_DEPTH,
        ):
            with self.subTest(data[:20]):
                with self.assertRaises(ValueError):
                    RawJSON(data)


class Codes(unittest.TestCase):
    codes = {code for code, _ in errors.KINDS}

    def test_golden(self):
        cases = golden("codes.json")
        self.assertEqual({case["name"] for case in cases}, self.codes)
        ends = {case["name"] for case in cases if case["ends_job"]}
        known = {code for code, ended in errors.KINDS if ended}
        self.assertEqual(ends, known - {errors.TakenOver.code})

    def test_each_has_its_class(self):
        for code in sorted(self.codes):
            for ended in (False, True):
                err = errors.from_code(code, "why", "a1", ended)
                self.assertEqual((err.code, err.reason, err.id), (code, "why", "a1"))
                base = errors.JobError if ended else errors.RefusedError
                self.assertIsInstance(err, base)
                copy = pickle.loads(pickle.dumps(err))
                self.assertEqual((type(copy), str(copy)), (type(err), str(err)))
        self.assertIsInstance(errors.from_code("id_exists", "", None), errors.IDExists)
        for ended in (False, True):
            err = errors.from_code("draining", "", None, ended)
            self.assertIsInstance(err, errors.Draining)

    def test_unknown(self):
        err = errors.from_code("on_strike", "tomorrow", "a")
        self.assertIs(type(err), errors.RefusedError)
        self.assertEqual(str(err), "refused: on_strike: tomorrow (id 'a')")

    def test_lost_error(self):
        cause = ConnectionResetError("reset")
        for acked, sent, words in (
            (True, True, "acked"),
            (False, True, "sent, not acked"),
            (False, False, "not sent"),
        ):
            err = errors.LostError(cause, "h:1", "a", acked, sent)
            self.assertEqual(
                str(err), f"connection to h:1 lost with job 'a' {words}: reset"
            )
            copy = pickle.loads(pickle.dumps(err))
            self.assertEqual(str(copy.__cause__), "reset")
            self.assertEqual(
                (copy.id, copy.addr, copy.acked, copy.sent),
                ("a", "h:1", acked, sent),
            )


if __name__ == "__main__":
    unittest.main()
