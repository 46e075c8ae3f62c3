"""What dpsim writes: sets of files in a folder, and single files; whole, or not at all.

Everything is written to a folder ``.dpsim-writing-…`` beside its place and synchronised before it
is moved there.  A new folder gets its name when all is in it.  Into one that is there a set is
moved file by file, from ``.dpsim-ready`` inside: whoever is killed meanwhile, the next command that
writes there finishes it first.  The manifest comes last: it names the files of each set with their
SHA-256, as ``sha256sum -c dpsim.sha256`` reads them, and it says that the folder is dpsim's.  What
dpsim did not write, and what the command reads, is never written over.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import re
import secrets
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from dpsim.core import files
from dpsim.core.record import Refused

MANIFEST = "dpsim.sha256"
STAGE, READY = ".dpsim-writing-", ".dpsim-ready"
_HEAD = "# Written by dpsim.  Without this file nothing in its folder is written over.\n"
#: what a file of dpsim's own begins with, or holds
_OURS = re.compile(
    rb'\A# Written by dpsim|"dpsim_version": ?"|"producer": "dpsim '
    rb"|\A(?:\x89PNG|<\?xml|%PDF).*Written by dpsim",
    re.DOTALL,
)
#: bytes of a file, or of a manifest, that are looked at
_LOOK = 2**26
#: title of a set -> its files -> their SHA-256
Sets = dict[str, dict[str, str]]


# -- what may be written to -----------------------------------------------------------------------


def check_folder(out: Path, option: str = "--out") -> None:
    """Raises Refused where something that is no folder is in the way, or the folder has files that
    dpsim did not write."""
    for place in (out, *out.parents):
        if place.exists() and not place.is_dir():
            raise Refused(f"{option} {out}: {place} is a file, and a folder is needed")
    if out.is_dir() and _sets(out) is None:
        found = sorted(name for name in os.listdir(out) if not name.startswith(".dpsim-"))
        if found:
            shown = ", ".join(found[:3]) + ", …" * (len(found) > 3)
            raise Refused(
                f"{option} {out}: dpsim did not write what is in that folder ({shown}); give a new "
                "or an empty one"
            )


def check_file(out: Path, option: str = "--out") -> None:
    """Raises Refused where no file may be written to `out`: a folder, a device, an input of this
    command, or a file that dpsim did not write."""
    if out.is_dir():
        raise Refused(f"{option} {out}: is a folder, and a file is to be written")
    if out.exists() and not out.is_file():
        raise Refused(f"{option} {out}: is not a regular file")
    _check_input(out, f"{option} {out}")
    if out.exists() and not _ours(out):
        raise Refused(
            f"{option} {out}: is there, and dpsim did not write it; give another name, or delete it"
        )


def _check_input(path: Path, said: str) -> None:
    if files.was_read(path):
        raise Refused(f"{said}: is read by this command; give another")


def _ours(path: Path) -> bool:
    """Whether dpsim wrote the file at `path`."""
    try:
        with open(path, "rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else open(path, "rb") as file:
            return _OURS.search(file.read(_LOOK)) is not None
    except (OSError, EOFError):
        return False


def _check_names(out: Path, title: str, names: Mapping[str, bytes], option: str) -> None:
    """Refuse to write over files in folder `out` that are not of its set `title`."""
    sets = _sets(out) or {}
    whose = {name: other for other, listed in sets.items() for name in listed}
    for name in names:
        place = out / name
        if place.is_dir():
            raise Refused(f"{option} {out}: {place} is a folder, and a file is to be written there")
        _check_input(place, f"{option} {out}: {place}")
        if place.exists() and whose.get(name) != title:
            owner = f"belongs to {whose[name]}" if name in whose else "was not written by dpsim"
            raise Refused(f"{option} {out}: {place} {owner}; give another folder")


def marked(command: str, text: str) -> str:
    """`text` below the line by which dpsim knows a file that `command` wrote."""
    head = f"# Written by dpsim {command}.  Without this line the file is never written over.\n"
    return head + text


# -- writing --------------------------------------------------------------------------------------


def write_set(out: Path, contents: Mapping[str, bytes], option: str = "--out") -> None:
    """Let `contents` (name -> bytes) be files of folder `out`: all of them at once, in place of the
    set that its first file stands for.

    Raises Refused as `check_folder` does, and OSError, which names the file, where the disk is full
    or nothing can be written.
    """
    title = Path(next(iter(contents))).stem
    check_folder(out, option)
    with _named(out, option):
        if not out.exists():
            out.parent.mkdir(parents=True, exist_ok=True)
            with _stage(out.parent) as stage, contextlib.suppress(FileExistsError):
                _fill(stage, contents, out)
                _put(stage / MANIFEST, _manifest({title: _digests(contents)}), out / MANIFEST)
                _rename(stage, out)
                return
        claim(out, option)
        with _stage(out) as stage:
            _fill(stage, contents, out)
            with _alone(out):
                _finish(out)
                _check_names(out, title, contents, option)
                sets = {**(_sets(out) or {}), title: _digests(contents)}
                _put(stage / MANIFEST, _manifest(sets), out / MANIFEST)
                _rename(stage, out / READY)
                _finish(out)


def claim(out: Path, option: str = "--out") -> None:
    """Make `out` a folder of dpsim's, which others then leave alone; Refused as `check_folder`."""
    check_folder(out, option)
    with _named(out, option):
        out.mkdir(parents=True, exist_ok=True)
        _sweep(out)
        if _sets(out) is None:
            with _stage(out) as stage:
                _put(stage / MANIFEST, _manifest({}), out / MANIFEST)
                with _alone(out):
                    if _sets(out) is None:
                        os.replace(stage / MANIFEST, out / MANIFEST)
                        _sync(out)


def write_files(contents: Mapping[Path, bytes], option: str = "--out") -> None:
    """Let `contents` (path -> bytes) be files of one folder, which is made where it lacks; the
    later ones are never there with an earlier one of another time."""
    contents = {Path(os.path.realpath(path)): data for path, data in contents.items()}
    for path in contents:
        check_file(path, option)
    replace_files(contents, option)


def replace_files(contents: Mapping[Path, bytes], option: str = "--out") -> None:
    """The same without a look at what is there: dpsim's own files."""
    first, *others = contents
    with _named(first, option):
        first.parent.mkdir(parents=True, exist_ok=True)
        with _stage(first.parent) as stage:
            _fill(stage, {path.name: data for path, data in contents.items()}, first.parent)
            with undisturbed():
                for path in others:
                    path.unlink(missing_ok=True)
                for path in contents:
                    os.replace(stage / path.name, path)
                _sync(first.parent)


def _fill(stage: Path, contents: Mapping[str, bytes], out: Path) -> None:
    """Write `contents` into `stage`, to last; messages name their places in `out`."""
    for name, data in contents.items():
        _put(stage / name, data, out / name)


def _put(path: Path, data: bytes, final: Path) -> None:
    try:
        with open(path, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(f"{final}: cannot be written: {error.strerror}") from None


def _rename(stage: Path, place: Path) -> None:
    """Give `stage`, complete, its name; FileExistsError where that is taken."""
    _sync(stage)
    with undisturbed():
        try:
            os.rename(stage, place)
        except OSError as error:
            if place.is_dir():
                raise FileExistsError from error
            raise
        _sync(place.parent)


def _finish(out: Path) -> None:
    """Move the set that is ready in `out` to its place, in place of the one that it replaces."""
    ready = out / READY
    if not ready.is_dir():
        return
    old, new = _sets(out) or {}, _sets(ready)
    for title, listed in (new or {}).items():
        for name in old.get(title, ()):
            if name not in listed or (ready / name).exists():
                (out / name).unlink(missing_ok=True)
    for path in sorted(ready.iterdir(), key=lambda path: path.name == MANIFEST):
        if path.name == MANIFEST:
            _sync(out)
        os.replace(path, out / path.name)
    ready.rmdir()
    _sync(out)


# -- manifests ------------------------------------------------------------------------------------


def _digests(contents: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(contents[name]).hexdigest() for name in sorted(contents)}


def _manifest(sets: Sets) -> bytes:
    lines = [
        line
        for title in sorted(sets)
        for line in (f"# {title}", *(f"{digest}  {name}" for name, digest in sets[title].items()))
    ]
    return (_HEAD + "".join(f"{line}\n" for line in lines)).encode()


def _sets(folder: Path) -> Sets | None:
    """The sets that the manifest of `folder` names; None without a manifest of dpsim's."""
    path = folder / MANIFEST
    try:
        text = path.read_bytes()[:_LOOK].decode(errors="replace")
    except OSError:
        return None
    if not text.startswith(_HEAD):
        return None
    sets: Sets = {}
    for line in text.removeprefix(_HEAD).splitlines():
        if line.startswith("# "):
            listed = sets.setdefault(line[2:], {})
        elif sets and (found := re.fullmatch(r"([0-9a-f]{64})  (.+)", line)):
            listed[found[2]] = found[1]
    return sets


# -- folders on the way ---------------------------------------------------------------------------


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for this process alone; if it is killed, the next one removes it."""
    with _stage(Path(tempfile.gettempdir()), 0o700) as folder:
        inside = folder / "inside"  # whose lock is not held
        inside.mkdir()
        yield inside


@contextlib.contextmanager
def _stage(place: Path, mode: int = 0o777) -> Iterator[Path]:
    """A folder in `place`, locked, and gone afterwards unless it was renamed; those of processes
    that have ended are removed."""
    _sweep(place)
    while True:
        folder = place / f"{STAGE}{secrets.token_hex(8)}"
        try:
            folder.mkdir(mode)
            with _locked(folder):
                if folder.is_dir():  # nobody took it for a leftover before it was locked
                    yield folder
                    return
        finally:
            with undisturbed():
                shutil.rmtree(folder, ignore_errors=True)


def _sweep(place: Path) -> None:
    """Remove what processes that have ended were writing in `place`."""
    for left in place.glob(f"{STAGE}*"):
        with contextlib.suppress(OSError), _locked(left, wait=False) as sure:
            if sure:
                shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of `folder`, which the system takes back when this process ends; says False
    where the system has none.  Not waiting, OSError if another process holds it."""
    try:
        import fcntl

        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (ImportError, FileNotFoundError):
        yield False
        return
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            if not wait:
                raise
            yield False  # a file system without locks
            return
        yield True
    finally:
        os.close(file)


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    """One process at a time moves files in `out`, and what it began it finishes."""
    with _locked(Path(os.path.realpath(out))), undisturbed():
        yield


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that interrupt come after the block, not inside it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    wanted = (signal.SIGINT, signal.SIGTERM)
    before = {one: signal.signal(one, lambda number, _: came.append(number)) for one in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if came:
            signal.raise_signal(came[0])


@contextlib.contextmanager
def _named(out: Path, option: str) -> Iterator[None]:
    """The system's errors, with the place that `option` names."""
    try:
        yield
    except OSError as error:
        if error.strerror is None:  # says it already
            raise
        raise OSError(f"{option} {out}: cannot write there: {error.strerror}") from None


def _sync(folder: Path) -> None:
    """Make what was renamed in `folder` last."""
    with contextlib.suppress(OSError):  # some systems cannot open folders
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
