"""Builds the package for pip, with the standard library alone.

The usual backends need the wheel package, which pip may have to download; this
one lets "pip install ." work without a network.  It reads the
plain strings of [project] in pyproject.toml and the version in the package.
"""

import base64
import hashlib
import io
import pathlib
import re
import tarfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Write the wheel; returns its file name."""
    files = {
        path.relative_to(SOURCE).as_posix(): path.read_bytes()
        for path in sorted((SOURCE / "gloom").rglob("*"))
        if path.suffix in (".py", ".typed")
    }
    return _write(wheel_directory, files)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Write a wheel that points to these sources; returns its file name."""
    return _write(wheel_directory, {"gloom.pth": f"{SOURCE}\n".encode()})


def build_sdist(sdist_directory, config_settings=None):
    """Write the source archive; returns its file name."""
    name, metadata = _describe()
    target = pathlib.Path(sdist_directory) / f"{name}.tar.gz"
    with tarfile.open(target, "w:gz") as archive:
        for part in "pyproject.toml", "README.md", "pep517", "src":
            archive.add(ROOT / part, f"{name}/{part}", filter=_no_cache)
        info = tarfile.TarInfo(f"{name}/PKG-INFO")
        info.size = len(metadata)
        archive.addfile(info, io.BytesIO(metadata))
    return target.name


def _no_cache(info):
    return None if "__pycache__" in info.name else info


def _describe():
    """The name and version of the package, and its metadata."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    project = text.partition("[project]\n")[2].partition("\n[")[0]
    field = dict(re.findall(r'^([\w-]+) = "(.*)"$', project, re.MULTILINE))
    package = (SOURCE / "gloom" / "__init__.py").read_text("utf-8")
    version = re.search(r'^__version__ = "(.+)"$', package, re.MULTILINE).group(1)
    lines = (
        "Metadata-Version: 2.1",
        f"Name: {field['name']}",
        f"Version: {version}",
        f"Summary: {field['description']}",
        "License: MIT",
        f"Requires-Python: {field['requires-python']}",
        "Description-Content-Type: text/markdown\n",
        (ROOT / field["readme"]).read_text("utf-8"),
    )
    return f"gloom-{version}", "\n".join(lines).encode()


def _write(directory, files):
    name, metadata = _describe()
    about = "Wheel-Version: 1.0\nGenerator: gloom\nRoot-Is-Purelib: true\n"
    files[f"{name}.dist-info/METADATA"] = metadata
    files[f"{name}.dist-info/WHEEL"] = f"{about}Tag: py3-none-any\n".encode()
    record = [f"{path},{_digest(data)},{len(data)}" for path, data in files.items()]
    record.append(f"{name}.dist-info/RECORD,,\n")
    files[f"{name}.dist-info/RECORD"] = "\n".join(record).encode()
    wheel = pathlib.Path(directory) / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            # A fixed date: the same sources make the same bytes.
            entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return wheel.name


def _digest(data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return "sha256=" + digest.rstrip(b"=").decode()
