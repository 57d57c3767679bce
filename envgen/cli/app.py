"""The application: all commands, and what errors look like."""

from __future__ import annotations

import errno
import logging
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.logging import RichHandler
from rich.text import Text
from typer.core import TyperGroup

import envgen
from envgen.cli import (
    dataset,
    doctor,
    evaluate,
    export,
    generate,
    images,
    model,
    records,
    report,
    runs,
    serve,
    train,
    try_tests,
)
from envgen.cli import quickstart as quickstart_cli
from envgen.cli.console import remark, talk
from envgen.core.errors import DatasetError, EnvgenError, StoreError

logger = logging.getLogger(__name__)

ORDER = (
    "quickstart", "doctor", "generate", "pack", "try-tests", "import", "list", "show", "validate", "variants",
    "export", "rollout", "pass-at-k", "filter", "model", "train", "report", "eval", "canaries", "serve",
    "images",
)  # fmt: skip
"""How --help lists the commands: as one uses them."""


class _Ordered(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))


app = typer.Typer(
    name="envgen",
    cls=_Ordered,
    epilog="Start with `envgen quickstart`; `envgen COMMAND --help` shows examples.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
quickstart_cli.add_commands(app)
doctor.add_commands(app)
app.add_typer(generate.app, name="generate")
app.add_typer(records.app, name="import")
dataset.add_commands(app)
export.add_commands(app)
runs.add_commands(app)
app.add_typer(model.app, name="model")
train.add_commands(app)
evaluate.add_commands(app)
report.add_commands(app)
app.add_typer(serve.app, name="serve")
app.add_typer(images.app, name="images")
try_tests.add_commands(app)

RESUMED = ("generate", "import", "rollout", "train", "eval", "quickstart")
"""Commands that store what they have finished, and go on from there."""
OS_HINTS = {
    errno.ENOSPC: "make room; what is finished is stored, the same command goes on from there",
    errno.EFBIG: "raise the file size limit (ulimit -f); what is finished is stored",
    errno.EACCES: "choose a path that you may write",
    errno.EROFS: "choose a path that you may write",
    errno.EMFILE: "raise the limit of open files (ulimit -n), or lower --concurrency",
}


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
    """Make, prove, step and filter reinforcement-learning environments for language-model agents."""
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.WARNING,
        handlers=[RichHandler(console=talk, show_path=False)],
        format="%(name)s: %(message)s",
        force=True,
    )


def run(arguments: list[str] | None = None, *, stopped: Callable[[], bool] = lambda: False) -> int:
    """Run one command and return its exit code: 0, 1 (a check failed), 2 (an error) or 130 (Ctrl-C).

    Args:
        arguments: of the command line.
        stopped: whether a signal has asked for the end. An error is no news then: the signal may have
            come in the midst of a library that makes another exception of it (pydantic does).
    """
    wanted = sys.argv[1:] if arguments is None else arguments
    try:
        code = app(args=wanted, prog_name="envgen", standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        code = 130
    except Exception as error:
        if not stopped():
            return _failed(error)
        logger.info("after the signal", exc_info=error)
        code = 130
    if code == 130:  # Typer may have made it of a KeyboardInterrupt
        goes_on = "; what is finished is stored, the same command goes on from there"
        remark("interrupted" + (goes_on if wanted[:1] and wanted[0] in RESUMED else ""))
    return code if isinstance(code, int) else 0


def _failed(error: Exception) -> int:
    """Tell what went wrong; what is nobody's mistake but ours is raised again."""
    match error:
        case EnvgenError():
            return _fail(str(error), error.hint or _hint(error))
        case ValidationError():
            return _invalid(error)
        case BrokenPipeError():
            sys.stderr.close()  # nobody reads any more; be silent at exit, too
            return 0
        case OSError():
            return _fail(str(error), OS_HINTS.get(error.errno or 0, "check the path"))
    usage = getattr(error, "format_message", None)  # Typer's own errors
    if usage is None:
        raise error
    if type(error).__name__ == "NoArgsIsHelpError":
        remark(usage())
        return 2
    return _fail(usage(), _usage_hint(error))


def _fail(text: str, hint: str) -> int:
    talk.print(Text.assemble(("error: ", "bold red"), text), soft_wrap=True)
    if hint:
        talk.print(Text.assemble(("hint: ", "bold"), hint), soft_wrap=True)
    return 2


def _hint(error: EnvgenError) -> str:
    if isinstance(error, DatasetError):
        return "check the path, or make a dataset: `envgen generate general --out ds/`"
    if isinstance(error, StoreError):
        return "check the path; `envgen rollout` makes run folders"
    return "run the command again with `envgen --verbose` to see more"


def _invalid(error: ValidationError) -> int:
    """A config that pydantic refused: our own error if there is one inside, else its findings."""
    found = []
    for one in error.errors(include_url=False):
        inner = one.get("ctx", {}).get("error")
        if isinstance(inner, EnvgenError):
            return _fail(str(inner), inner.hint)
        place = ".".join(str(part) for part in one["loc"])
        got = f", got {one['input']!r}" if place else ""  # a whole config tells nobody anything
        found.append(f"{place or error.title}: {one['msg']}{got}")
    return _fail("; ".join(found), "see the command's --help for what is allowed")


def _usage_hint(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return f"see `{context.command_path} --help`" if context is not None else "see `envgen --help`"
