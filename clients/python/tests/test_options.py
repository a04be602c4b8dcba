"""Settings, durations, and the waits between attempts to connect."""

import os
import ssl
import unittest
from unittest import mock

import support  # noqa: F401  (finds the package)

from gloom._link import Backoff
from gloom._options import Event, Notice, Options, local_socket, to_millis, split_addr


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
            self.assertEqual(to_millis("delay", seconds), ms)

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
                to_millis("delay", seconds)


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


    def test_local_socket(self):
        for folder, user, path in (
            ("/run/user/1000", 1000, "/run/user/1000/gloom/submit.sock"),
            ("/run/user/1000", 0, "/run/gloom/submit.sock"),
            ("relative", 1000, "/run/gloom/submit.sock"),
            ("", 1000, "/run/gloom/submit.sock"),
        ):
            with self.subTest(folder, user=user), mock.patch.dict(
                os.environ, XDG_RUNTIME_DIR=folder
            ), mock.patch("os.geteuid", lambda: user):
                self.assertEqual(local_socket("submit"), path)

    def test_default(self):
        for addrs, settings, want in (
            ((), {}, (("127.0.0.1:9998",), local_socket("submit"))),
            ((), {"tls": ssl.create_default_context()}, (("127.0.0.1:9998",), "")),
            (("localhost:1",), {}, (("localhost:1",), "")),
        ):
            options = Options(addrs, "submit", 9998, **settings)
            self.assertEqual((options.addrs, options.local), want)


class Waits(unittest.TestCase):
    def limits(self, backoff, times):
        """The limits from which the next waits are drawn."""
        self.drawn = []
        for _ in range(times):
            backoff.failed("broker:1", OSError("refused"))
        return self.drawn

    def backoff(self, base, most):
        def uniform(least, limit):
            self.assertEqual(least, 0)
            self.drawn.append(limit)
            return limit

        patch = mock.patch("random.uniform", uniform)
        patch.start()
        self.addCleanup(patch.stop)
        self.notices = []
        return Backoff(self.options(base, most, self.notices.append))

    def options(self, base, most, notify):
        return Options((), "submit", 9998, backoff=(base, most), notify=notify)

    def lost(self, backoff, lasted):
        """Lose a connection that lasted so long; returns the limit of the next wait."""
        self.drawn = []
        link, cause = mock.Mock(addr="broker:1", made=100.0), ConnectionResetError("reset")
        link._loop.time.return_value = link.made + lasted
        link.lost.result.return_value = cause
        waits = backoff.lost(link)
        self.assertEqual(self.drawn, [waits])
        want = Notice(Event.LOST, "broker:1", cause, waits)
        self.assertEqual(self.notices[-1], want)
        return waits

    def test_doubles_up_to_the_most(self):
        backoff = self.backoff(0.1, 0.5)
        self.assertEqual(self.limits(backoff, 5), [0.1, 0.2, 0.4, 0.5, 0.5])

    def test_begins_anew_after_a_connection_that_lasted(self):
        backoff = self.backoff(0.1, 0.5)
        self.limits(backoff, 3)
        self.assertEqual(self.lost(backoff, 0.25), 0.5)
        self.assertEqual(self.lost(backoff, 0.5), 0.1)
        self.assertEqual(self.limits(backoff, 1), [0.2])

    def test_random(self):
        options, error = self.options(0.1, 1.0, lambda _: None), OSError("refused")
        waits = {Backoff(options).failed("broker:1", error) for _ in range(50)}
        self.assertGreater(len(waits), 40)
        self.assertTrue(all(0 <= wait <= 0.1 for wait in waits))


if __name__ == "__main__":
    unittest.main()
