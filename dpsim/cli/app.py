"""The commands: every module of this folder that has a PLACE is one.

A command ``check-nccl`` is the file ``check_nccl.py`` with the function of that name; its PLACE is
where ``dpsim --help`` lists it.  (Names that Python keeps for itself end in an underscore.)
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

import typer

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
        program.command(name.rstrip("_").replace("_", "-"))(getattr(module, name))
    return program


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
