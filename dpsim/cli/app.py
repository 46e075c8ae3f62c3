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
from dpsim.cli import defaults
from dpsim.cli.manners import with_manners


def app() -> typer.Typer:
    """The program with all commands."""
    program = typer.Typer(
        name="dpsim",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    program.callback()(_top)
    for module in _commands():
        name = module.__name__.rpartition(".")[2]
        program.command(called(name), cls=Command)(with_manners(getattr(module, name)))
    return program


def called(name: str) -> str:
    """What the command of a module is called on the command line."""
    return name.rstrip("_").replace("_", "-")


class Command(TyperCommand):
    """A command whose options have defaults of the user's, and whose whole numbers are ASCII
    digits: Python itself takes 1_0 for 10."""

    def __init__(self, name: str | None, **given: Any) -> None:
        super().__init__(name, **given)
        for param in self._options():
            param.envvar = defaults.variables(name or "", _long(param))
            param.show_envvar = False

    def _options(self) -> list[Any]:
        """The options that can have a default of the user's."""
        return [one for one in self.params if one.param_type_name == "option" and not one.is_eager]

    def _defaults(self, ctx: Any) -> dict[str, Any]:
        """What the user's file says of them."""
        names = {_long(param): str(param.name) for param in self._options()}
        every = ctx.parent.command.commands.items()
        defaults.check_environment(
            word
            for name, one in every
            for param in one._options()
            for word in defaults.variables(name, _long(param))
        )
        return defaults.of(str(ctx.info_name), names, list(ctx.parent.command.commands))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.parent is not None and not {"-h", "--help"} & set(args):
            ctx.default_map = self._defaults(ctx)
        hints = get_type_hints(inspect.unwrap(self.callback)) if self.callback else {}
        whole = {name for name, hint in hints.items() if int in (hint, *get_args(hint))}
        options = {text for param in self.params if param.name in whole for text in param.opts}
        words = [word for arg in args for word in arg.partition("=")[::2] if word]
        for option, value in pairwise(words):
            if option in options and not re.fullmatch("[+-]?[0-9]{1,18}", value):
                raise typer.BadParameter(f"{value[:40]!r} is not a whole number", param_hint=option)
        return super().parse_args(ctx, args)


def _long(param: Any) -> str:
    """An option without its dashes, by its longest name."""
    return str(max(param.opts, key=len)).lstrip("-")


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
        False,
        "--version",
        "-V",
        callback=_version,
        is_eager=True,
        help="Print the version and stop.",
    ),
) -> None:
    """Predict how data-parallel training scales, before anyone buys or rents the machines."""
