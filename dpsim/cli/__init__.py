"""Cli: the commands, a thin file each; this one turns errors into exit codes.

Exit codes: 0 done; 1 done, with a finding; 2 input refused; 3 environment; 4 internal; 130
interrupted (SIGINT), 143 ended (SIGTERM), 141 nobody reads the output any more (SIGPIPE).  Heavy
imports happen inside commands, so that ``dpsim --help`` is quick.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import os
import re
import signal
import sys
import threading
import warnings
from types import FrameType
from typing import Any, NoReturn

DONE, FINDING, REFUSED, ENVIRONMENT, INTERNAL = 0, 1, 2, 3, 4
#: as shells tell of a program that a signal ended: 128 and its number
INTERRUPTED, UNREAD, ENDED = 130, 141, 143
#: writing failed; files are named where that happens, so it was the output
_UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main() -> NoReturn:
    """Entry point of the `dpsim` command."""
    # a run makes many objects and few cycles: look for those seldom
    gc.set_threshold(1_000_000, 50, 100)
    code = status()
    if threading.active_count() > 1 or sys.getprofile() or sys.gettrace():
        sys.exit(code)
    # Python takes every module apart before it ends, which is a tenth of a short command
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


def status() -> int:
    """Do what the command line says; returns the exit code.

    SIGTERM tidies up what is under way, as Ctrl-C does.
    """
    ended: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        ended.append(number)
        raise KeyboardInterrupt

    warnings.formatwarning = lambda message, *_: f"dpsim: warning: {message}\n"
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end)
    code = _run()
    if ended and code == INTERRUPTED:
        code = ENDED
    if code in (ENVIRONMENT, UNREAD):  # Python would try again to write what is left, and complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return code


def _run() -> int:
    try:
        from dpsim.cli.app import app

        if sys.stdout is None:
            raise OSError("standard output is closed; > /dev/null throws it away")
        result = app()(prog_name="dpsim", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else DONE
    except KeyboardInterrupt:
        return INTERRUPTED
    except (Exception, SystemExit) as error:  # every error becomes one message and an exit code
        unread = error.__context__ if isinstance(error, SystemExit) else error
        if isinstance(unread, BrokenPipeError):
            return UNREAD  # typer makes a SystemExit of it
        if isinstance(error, SystemExit) and error.code in (None, DONE):
            return DONE  # shells have been told what completes a word
        return _explain(error)
    finally:
        if "dpsim.core.files" in sys.modules:
            sys.modules["dpsim.core.files"].forget_reads()


def _explain(error: BaseException) -> int:
    """Print one message for `error` on stderr; returns the exit code."""
    name = type(error).__name__
    if hasattr(error, "format_message"):  # a usage error of the command line itself
        said, instead = _plain(error.format_message()), _instead(error)
        said = f"{said.rstrip('.')}; {instead}" if instead else said
        _tell(said if name == "NoArgsIsHelpError" else f"dpsim: {said}")
        return REFUSED
    if name in ("Exit", "Abort"):
        return int(getattr(error, "exit_code", FINDING))
    code, prefix = _kind(error)
    message = _said(error).strip().splitlines() or [name]
    _tell(f"dpsim: {prefix}{' '.join(message)}"[:2000])
    return code


def _tell(message: str) -> None:
    """Write a line to standard error; where that cannot be written, the exit code says it all."""
    if sys.stderr is None:  # closed; print would take standard output instead
        return
    try:
        print(message, file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _plain(message: str) -> str:
    """A message about an option, in this program's words."""
    for theirs, ours in (("greater", "least"), ("less", "most")):
        message = message.replace(f"Input should be {theirs} than or equal to", f"at {ours}")
    return message


def _instead(error: Any) -> str:
    """What to write instead of a command or an option that there is not."""
    told = error.format_message()
    found = re.search(r"No such (command|option):? '?-*([\w-]+)", told)
    if found is None or "Did you mean" in told:
        return ""
    from dpsim.core import unknown

    if found[1] == "command":
        return unknown.command(found[2])
    takes = {parameter.name for parameter in error.ctx.command.params}
    return unknown.option(found[2]) if "sets" in takes else ""


def _said(error: BaseException) -> str:
    """What `error` says; of the system's errors the file and the reason, without its number."""
    if isinstance(error, OSError) and error.strerror:
        if error.filename is not None:
            return f"{str(error.filename)[:200]}: {error.strerror.lower()}"
        if error.errno in _UNWRITTEN:
            return f"standard output: {error.strerror.lower()}"
    return str(error)


def _kind(error: BaseException) -> tuple[int, str]:
    from dpsim.core.errors import SimulationError
    from dpsim.core.record import Refused

    if isinstance(error, Refused):
        return REFUSED, ""
    if isinstance(error, SimulationError):
        return INTERNAL, "no number: "
    if isinstance(error, OSError):
        return ENVIRONMENT, ""
    return INTERNAL, f"internal error, please report it: {type(error).__name__}: "
