"""The commands by name."""

from __future__ import annotations

import typer

from dpsim.cli import (
    calibrate,
    check_nccl,
    collective,
    compare,
    explain,
    importing,
    measure,
    plan,
    run,
    schema,
    show,
    stragglers,
    sweep,
    validate,
)

app = typer.Typer(
    name="dpsim",
    help="Predict how data-parallel training scales, before anyone buys or rents the machines.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("run")(run.run)
app.command("sweep")(sweep.sweep)
app.command("plan")(plan.plan)
app.command("explain")(explain.explain)
app.command("compare")(compare.compare)
app.command("collective")(collective.collective)
app.command("check-nccl")(check_nccl.check_nccl)
app.command("calibrate")(calibrate.calibrate)
app.command("import")(importing.import_)
app.command("measure")(measure.measure)
app.command("show")(show.show)
app.command("schema")(schema.schema)
app.command("stragglers")(stragglers.stragglers)
app.command("validate")(validate.validate)


def _version(wanted: bool) -> None:
    if wanted:
        from dpsim._version import __version__

        typer.echo(__version__)
        raise typer.Exit()


@app.callback()
def _top(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and stop."
    ),
) -> None:
    """Predict how data-parallel training scales, before anyone buys or rents the machines."""
