"""The application: all commands, and what errors look like."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer
from rich.logging import RichHandler
from rich.markup import escape

import envgen
from envgen.cli import dataset, generate, runs
from envgen.cli import quickstart as quickstart_cli
from envgen.cli.console import talk
from envgen.core.errors import EnvgenError

app = typer.Typer(
    name="envgen",
    help="Make, prove, step and filter reinforcement-learning environments for language-model agents.",
    epilog="Start with: envgen quickstart",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.add_typer(generate.app, name="generate")
dataset.add_commands(app)
runs.add_commands(app)
quickstart_cli.add_commands(app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"envgen {envgen.__version__}")
        raise typer.Exit


@app.callback()
def options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of every command."""
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.WARNING,
        handlers=[RichHandler(console=talk, show_path=False)],
        format="%(name)s: %(message)s",
    )


def run(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        code = app(args=sys.argv[1:] if arguments is None else arguments, standalone_mode=False)
    except EnvgenError as error:
        return _fail(str(error), error.hint)
    except typer.Abort:
        return 130
    except KeyboardInterrupt:
        talk.print("interrupted; what is finished is stored, run the same command to go on")
        return 130
    except BrokenPipeError:
        return 0
    except Exception as error:
        usage = getattr(error, "format_message", None)
        if usage is None:
            raise
        return _fail(usage(), _usage_hint(error))
    return code if isinstance(code, int) else 0


def _fail(text: str, hint: str) -> int:
    talk.print(f"[bold red]error:[/] {escape(text)}", highlight=False)
    if hint:
        talk.print(f"[bold]hint:[/] {escape(hint)}", highlight=False)
    return 2


def _usage_hint(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return f"see `{context.command_path} --help`" if context is not None else "see `envgen --help`"
