"""Cli: the commands, a thin file each; this one turns errors into exit codes.

Exit codes: 0 done; 1 done, with a finding; 2 input refused; 3 environment; 4 internal; 130
interrupted.  Heavy imports happen inside commands, so that ``dpsim --help`` is quick.
"""

from __future__ import annotations

import re
import sys
from typing import Any

DONE, FINDING, REFUSED, ENVIRONMENT, INTERNAL, INTERRUPTED = 0, 1, 2, 3, 4, 130


def main() -> None:
    """Entry point of the `dpsim` command."""
    sys.exit(_run())


def _run() -> int:
    from dpsim.cli.app import app

    try:
        result = app()(standalone_mode=False)
        return result if isinstance(result, int) else DONE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return DONE
    except Exception as error:  # every error becomes one message and an exit code
        return _explain(error)


def _explain(error: Exception) -> int:
    """Print one message for `error` on stderr; returns the exit code."""
    name = type(error).__name__
    if hasattr(error, "format_message"):  # a usage error of the command line itself
        said, instead = _plain(error.format_message()), _instead(error)
        said = f"{said.rstrip('.')}; {instead}" if instead else said
        print(f"dpsim: {said}", file=sys.stderr)
        return REFUSED
    if name in ("Exit", "Abort"):
        return int(getattr(error, "exit_code", FINDING))
    code, prefix = _kind(error)
    message = _said(error).strip().splitlines() or [name]
    print(f"dpsim: {prefix}{' '.join(message)}"[:2000], file=sys.stderr)
    return code


def _plain(message: str) -> str:
    """A message about an option, in this program's words."""
    for theirs, ours in (("greater", "least"), ("less", "most")):
        message = message.replace(f"Input should be {theirs} than or equal to", f"at {ours}")
    return message


def _instead(error: Any) -> str:
    """What to write instead of a command or an option that there is not."""
    found = re.search(r"No such (command|option):? '?-*([\w-]+)", error.format_message())
    if found is None:
        return ""
    from dpsim.core import unknown

    if found[1] == "command":
        return unknown.command(found[2])
    takes = {parameter.name for parameter in error.ctx.command.params}
    return unknown.option(found[2]) if "sets" in takes else ""


def _said(error: Exception) -> str:
    """What `error` says; of the system's errors the file and the reason, without its number."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{str(error.filename)[:200]}: {error.strerror.lower()}"
    return str(error)


def _kind(error: Exception) -> tuple[int, str]:
    from dpsim.core.errors import SimulationError
    from dpsim.core.record import Refused

    if isinstance(error, Refused):
        return REFUSED, ""
    if isinstance(error, SimulationError):
        return INTERNAL, "no number: "
    if isinstance(error, OSError):
        return ENVIRONMENT, ""
    return INTERNAL, f"internal error, please report it: {type(error).__name__}: "
