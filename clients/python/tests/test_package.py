"""The package as pip installs it."""

import ast
import inspect
import pathlib
import subprocess
import sys
import tempfile
import unittest

from support import CLIENT, SOURCE

import gloom


class Package(unittest.TestCase):
    def run_python(self, *args, **how):
        done = subprocess.run(
            [sys.executable, *args], capture_output=True, text=True, timeout=60, **how
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_pip_installs_it_without_a_network(self):
        self.run_python("-c", "import pip  # if this fails: install python3-pip")
        with tempfile.TemporaryDirectory() as folder:
            self.run_python(
                *"-m pip install --quiet --disable-pip-version-check".split(),
                *"--no-index --no-build-isolation --target".split(),
                folder,
                str(CLIENT),
            )
            installed = pathlib.Path(folder)
            names = {path.name for path in (SOURCE / "gloom").iterdir()}
            for name in names - {"__pycache__"}:
                here = (SOURCE / "gloom" / name).read_bytes()
                self.assertEqual((installed / "gloom" / name).read_bytes(), here)
            self.assertIn("py.typed", names)
            (info,) = installed.glob("*.dist-info")
            self.assertEqual(info.name, f"gloom-{gloom.__version__}.dist-info")
            said = (info / "METADATA").read_text("utf-8")
            for line in (
                "Name: gloom",
                f"Version: {gloom.__version__}",
                "Requires-Python: >=3.11",
            ):
                self.assertIn(f"{line}\n", said)
            self.run_python(
                "-c", "import gloom; gloom.Submitter, gloom.Worker", cwd=folder
            )
        self.assertFalse(list(CLIENT.rglob("*.egg-info")))

    def test_source_archive(self):
        with tempfile.TemporaryDirectory() as folder:
            code = "import backend, sys; print(backend.build_sdist(sys.argv[1]))"
            name = self.run_python("-c", code, folder, cwd=CLIENT / "pep517")
            self.assertTrue((pathlib.Path(folder) / name.strip()).exists())

    def test_syntax_of_python_3_11(self):
        files = [*SOURCE.rglob("*.py"), *(CLIENT / "pep517").rglob("*.py")]
        self.assertGreater(len(files), 15)
        for path in files:
            ast.parse(path.read_text("utf-8"), str(path), feature_version=(3, 11))

    def test_twins_are_called_alike(self):
        for one, other in (
            (gloom.Submitter, gloom.AsyncSubmitter),
            (gloom.Worker, gloom.AsyncWorker),
        ):
            names = {name for name in vars(other) if not name.startswith("_")}
            self.assertEqual(names, {n for n in vars(one) if not n.startswith("_")})
            for name in sorted(names):
                sync, twin = getattr(one, name), getattr(other, name)
                if isinstance(sync, property):
                    continue
                with self.subTest(f"{one.__name__}.{name}"):
                    self.assertFalse(inspect.iscoroutinefunction(sync))
                    said, want = inspect.signature(sync), inspect.signature(twin)
                    self.assertEqual(said.parameters, want.parameters)

    def test_every_public_name_is_documented(self):
        missing = []
        for name in gloom.__all__:
            thing = getattr(gloom, name)
            if not thing.__doc__:
                missing.append(name)
            for member, value in vars(thing).items():
                public = not member.startswith("_") and (
                    callable(value) or isinstance(value, property)
                )
                if public and not value.__doc__:
                    missing.append(f"{name}.{member}")
        self.assertEqual(missing, [])


if __name__ == "__main__":
    unittest.main()
