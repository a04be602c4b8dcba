"""Settings, durations, and the waits between attempts to connect."""

import os
import pathlib
import socket
import tempfile
import unittest
import unittest.mock

import support  # noqa: F401  (finds the package)

from gloom._backoff import Backoff
from gloom._options import default_addr, millis, split_addr


class Durations(unittest.TestCase):
    def test_rounded_up(self):
        for seconds, ms in (
            (0, 0),
            (1, 1000),
            (0.1, 100),
            (0.3, 300),
            (1.001, 1001),
            (0.0001, 1),
            (0.0011, 2),
            (31536000, 31536000000),
        ):
            self.assertEqual(millis("delay", seconds), ms)

    def test_refused(self):
        for seconds, kind in (
            (-0.001, ValueError),
            (float("nan"), ValueError),
            (float("inf"), ValueError),
            (31536000.001, ValueError),
            (True, TypeError),
            ("1", TypeError),
            (None, TypeError),
        ):
            with self.assertRaisesRegex(kind, "delay"):
                millis("delay", seconds)


class Addresses(unittest.TestCase):
    def test_split(self):
        for addr, parts in (
            ("localhost:9998", ("", "localhost", 9998, False)),
            ("[::1]:80", ("", "::1", 80, False)),
            ("tls://[::1]:80", ("", "::1", 80, True)),
            ("tls://broker:9998", ("", "broker", 9998, True)),
            ("unix:/run/gloom.sock", ("/run/gloom.sock", "", 0, False)),
            ("unix:relative", ("relative", "", 0, False)),
        ):
            self.assertEqual(split_addr(addr), parts)


    def test_default(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(
            os.environ, XDG_RUNTIME_DIR=folder
        ), socket.socket(socket.AF_UNIX) as server:
            run = "/run/gloom/submit.sock"
            other = f"unix:{run}" if os.path.exists(run) else "127.0.0.1:9998"
            path = pathlib.Path(folder, "gloom", "submit.sock")
            self.assertEqual(default_addr("submit", 9998), other)
            path.parent.mkdir()
            path.write_text("a file, no socket")
            self.assertEqual(default_addr("submit", 9998), other)
            path.unlink()
            server.bind(str(path))
            self.assertEqual(default_addr("submit", 9998), f"unix:{path}")


class Waits(unittest.TestCase):
    def limits(self, backoff, times):
        """The limits from which the next waits are drawn."""
        self.drawn = []
        for _ in range(times):
            backoff.wait()
        return self.drawn

    def backoff(self, base, most):
        def uniform(least, limit):
            self.assertEqual(least, 0)
            self.drawn.append(limit)
            return limit

        return Backoff((base, most), uniform)

    def test_doubles_up_to_the_most(self):
        backoff = self.backoff(0.1, 0.5)
        self.assertEqual(self.limits(backoff, 5), [0.1, 0.2, 0.4, 0.5, 0.5])

    def test_begins_anew_after_a_connection_that_lasted(self):
        backoff = self.backoff(0.1, 0.5)
        self.limits(backoff, 3)
        backoff.lasted(0.4)
        self.assertEqual(self.limits(backoff, 1), [0.5])
        backoff.lasted(0.5)
        self.assertEqual(self.limits(backoff, 2), [0.1, 0.2])

    def test_random(self):
        waits = {Backoff((0.1, 1.0)).wait() for _ in range(50)}
        self.assertGreater(len(waits), 40)
        self.assertTrue(all(0 <= wait <= 0.1 for wait in waits))


if __name__ == "__main__":
    unittest.main()
