"""Builds the package for pip, with the standard library alone.

The usual backends want a wheel package that many Pythons lack, and fetch it;
this one lets "pip install ." work where there is no network.  It reads the
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
    """Write the wheel; its file name."""
    files = {
        path.relative_to(SOURCE).as_posix(): path.read_bytes()
        for path in sorted((SOURCE / "gloom").rglob("*"))
        if path.suffix in (".py", ".typed")
    }
    return _write(wheel_directory, files)


def build_editable(
    wheel_directory, config_settings=None, metadata_directory=None
):
    """Write a wheel that points to the sources here; its file name."""
    return _write(wheel_directory, {"gloom.pth": f"{SOURCE}\n".encode()})


def build_sdist(sdist_directory, config_settings=None):
    """Write the source archive; its file name."""
    name = f"gloom-{version()}"
    with tarfile.open(
        pathlib.Path(sdist_directory) / f"{name}.tar.gz", "w:gz"
    ) as archive:
        for part in ("pyproject.toml", "README.md", "pep517", "src"):
            archive.add(
                ROOT / part,
                f"{name}/{part}",
                filter=lambda info: None if "__pycache__" in info.name else info,
            )
        info = tarfile.TarInfo(f"{name}/PKG-INFO")
        data = metadata().encode()
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return f"{name}.tar.gz"


def version():
    """The package's version."""
    text = (SOURCE / "gloom" / "__init__.py").read_text("utf-8")
    return re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE).group(1)


def metadata():
    """What installers are told about the package."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    project = text.partition("[project]\n")[2].partition("\n[")[0]
    field = dict(re.findall(r'^([\w-]+) = "(.*)"$', project, re.MULTILINE))
    return (
        "Metadata-Version: 2.1\n"
        f"Name: {field['name']}\n"
        f"Version: {version()}\n"
        f"Summary: {field['description']}\n"
        "License: MIT\n"
        f"Requires-Python: {field['requires-python']}\n"
        "Description-Content-Type: text/markdown\n"
        "\n" + (ROOT / field["readme"]).read_text("utf-8")
    )


def _write(directory, files):
    info = f"gloom-{version()}.dist-info"
    files[f"{info}/METADATA"] = metadata().encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\n"
        b"Generator: gloom\n"
        b"Root-Is-Purelib: true\n"
        b"Tag: py3-none-any\n"
    )
    record = [f"{name},{_digest(data)},{len(data)}" for name, data in files.items()]
    record.append(f"{info}/RECORD,,\n")
    files[f"{info}/RECORD"] = "\n".join(record).encode()
    wheel = f"gloom-{version()}-py3-none-any.whl"
    with zipfile.ZipFile(
        pathlib.Path(directory) / wheel, "w", zipfile.ZIP_DEFLATED
    ) as archive:
        for name, data in files.items():
            # A fixed date: the same sources make the same bytes.
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return wheel


def _digest(data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return "sha256=" + digest.rstrip(b"=").decode()
