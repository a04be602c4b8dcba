"""The README's examples, run unchanged except for the ports."""

import builtins
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

from support import CLIENT, PATIENCE, SOURCE, Daemon, certificate

import gloom

README = (CLIENT / "README.md").read_text("utf-8")
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ERRORS = {
    "upper_worker.py": "AttributeError: 'int' object has no attribute 'upper'"
}
NAME = re.compile(r"# (\w+\.py)\n")


def examples():
    """Name, source and expected output of each example, in order."""
    found = []
    for kind, text in BLOCK.findall(README):
        if kind == "python":
            found.append([NAME.match(text).group(1), text, None])
        else:
            found[-1][2] = text
    return found


class Examples(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="gloom-readme-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = {**os.environ, "PYTHONPATH": str(SOURCE)}

    def run_all(self, daemon, programs):
        """Run all examples together: those that end by themselves print what they
        should, and then the workers stop when they are told to."""
        running = []
        for name, text, output in programs:
            text = text.replace("127.0.0.1:9998", daemon.submit_addr)
            text = text.replace("127.0.0.1:9999", daemon.worker_addr)
            path = os.path.join(self.folder, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            running.append((name, self.start(name), output))
        tried = 0
        for name, process, output in running:
            if not name.endswith("_worker.py"):
                with self.subTest(name):
                    out, err = process.communicate(timeout=3 * PATIENCE)
                    self.assertEqual((out, err), (output, ""))
                    tried += 1
        for name, process, _ in running:
            if name.endswith("_worker.py"):
                with self.subTest(name):
                    process.send_signal(signal.SIGTERM)
                    out, err = process.communicate(timeout=PATIENCE)
                    self.assertEqual((process.returncode, out), (0, ""))
                    # The log of the one example whose handler fails.
                    last = ERRORS.get(name, "")
                    self.assertEqual(err.rstrip().rpartition("\n")[2], last)
        return tried

    def start(self, name):
        process = subprocess.Popen(
            [sys.executable, name],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def test_all_run(self):
        plain = [e for e in examples() if e[0] != "guarded.py"]
        with Daemon() as daemon:
            self.assertGreater(self.run_all(daemon, plain), 7)

    def test_guarded(self):
        cert, key = certificate()
        shutil.copy(cert, os.path.join(self.folder, "ca.pem"))
        tokens = os.path.join(self.folder, "tokens")
        with open(tokens, "w") as file:
            file.write("s3cret submit\n")
        guarded = [e for e in examples() if e[0] == "guarded.py"]
        with Daemon(
            "--token-file", tokens, "--tls-cert", str(cert), "--tls-key", str(key)
        ) as daemon:
            self.assertEqual(self.run_all(daemon, guarded), 1)


class Statements(unittest.TestCase):
    """What the README says beside its examples."""

    def test_every_name_exists(self):
        for name in re.findall(r"gloom\.([A-Z]\w+)", README):
            self.assertTrue(hasattr(gloom, name), name)
        table = README.partition("| error |")[2].partition("\n\n")[0]
        for name in re.findall(r"`([A-Z]\w+)`", table):
            self.assertTrue(hasattr(gloom, name) or hasattr(builtins, name), name)

    def test_example_of_the_package(self):
        doc = gloom.__doc__
        with Daemon() as daemon:
            doc = doc.replace("127.0.0.1:9998", daemon.submit_addr)
            doc = doc.replace("127.0.0.1:9999", daemon.worker_addr)
            lines = [line[4:] for line in doc.splitlines() if line[:4] == "    "]
            worker = next(line for line in lines if line.startswith("gloom.Worker"))
            lines.remove(worker)
            made = []
            original = gloom.Worker.__init__

            def remember(self, *args, **settings):
                made.append(self)
                original(self, *args, **settings)

            gloom.Worker.__init__ = remember
            self.addCleanup(setattr, gloom.Worker, "__init__", original)
            thread = threading.Thread(target=exec, args=(worker, {"gloom": gloom}))
            thread.start()
            printed = []
            with contextlib.ExitStack() as stack:
                stack.callback(thread.join, PATIENCE)
                stack.callback(lambda: made[0].leave())
                exec("\n".join(lines), {"gloom": gloom, "print": printed.append})
            self.assertEqual(printed, [{"text": "hi"}])


if __name__ == "__main__":
    unittest.main()
