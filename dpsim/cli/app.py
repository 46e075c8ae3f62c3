"""The commands: every module of this folder that has a PLACE is one.

A command ``check-nccl`` is the file ``check_nccl.py`` with the function of that name; its PLACE is
where ``dpsim --help`` lists it.  (Names that Python keeps for itself end in an underscore.)
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from itertools import pairwise
from types import ModuleType
from typing import Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand

from dpsim import cli


def app() -> typer.Typer:
    """The program with all commands."""
    program = typer.Typer(
        name="dpsim",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    program.callback()(_top)
    for module in _commands():
        name = module.__name__.rpartition(".")[2]
        program.command(name.rstrip("_").replace("_", "-"), cls=Command)(getattr(module, name))
    return program


class Command(TyperCommand):
    """A command whose whole numbers are ASCII digits: Python itself takes 1_0 for 10."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        hints = get_type_hints(inspect.unwrap(self.callback)) if self.callback else {}
        whole = {name for name, hint in hints.items() if int in (hint, *get_args(hint))}
        options = {text for param in self.params if param.name in whole for text in param.opts}
        words = [word for arg in args for word in arg.partition("=")[::2] if word]
        for option, value in pairwise(words):
            if option in options and not re.fullmatch("[+-]?[0-9]{1,18}", value):
                raise typer.BadParameter(f"{value[:40]!r} is not a whole number", param_hint=option)
        return super().parse_args(ctx, args)


def _commands() -> list[ModuleType]:
    """The modules of commands in the order of their places."""
    found = (
        importlib.import_module(f"{cli.__name__}.{m.name}")
        for m in pkgutil.iter_modules(cli.__path__)
    )
    return sorted((m for m in found if hasattr(m, "PLACE")), key=lambda m: int(m.PLACE))


def _version(wanted: bool) -> None:
    if wanted:
        from dpsim._version import __version__

        typer.echo(__version__)
        raise typer.Exit()


def _top(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and stop."
    ),
) -> None:
    """Predict how data-parallel training scales, before anyone buys or rents the machines."""
