"""The application: all commands, and what errors look like."""

from __future__ import annotations

import errno
import logging
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import click
from rich.text import Text

import envgen
from envgen.cli.command import LeafCommand, imported, readable_errors
from envgen.cli.console import remark, talk
from envgen.cli.settings import texts
from envgen.core.errors import ConfigError, DatasetError, EnvgenError, StoreError, install_hint
from envgen.core.families import family_names, find_family
from envgen.core.registry import near_names

logger = logging.getLogger(__name__)

COMMANDS = {
    "quickstart": "quickstart:Quickstart",
    "doctor": "machine:Doctor",
    "generate": "",
    "page": "generate:PageCommand",
    "pack": "datasets:Pack",
    "try-tests": "code:TryTests",
    "import code": "code:Import",
    "import problems": "interpreter:ImportProblems",
    "import questions": "search:ImportQuestions",
    "list": "show:List",
    "show": "show:Show",
    "validate": "datasets:Validate",
    "audit": "datasets:Audit",
    "corpus build": "search:BuildCorpus",
    "check-proof": "proof:CheckProof",
    "corpus info": "search:CorpusInfo",
    "corpus search": "search:CorpusSearch",
    "variants": "datasets:Variants",
    "merge": "datasets:Merge",
    "export": "export:Export",
    "rollout": "rollouts:Rollout",
    "pass-at-k": "rollouts:PassAtK",
    "filter": "rollouts:FilterCommand",
    "model init": "models:Init",
    "model info": "models:Info",
    "inspect": "inspect:InspectCommand",
    "judge": "judge:JudgeCommand",
    "test-judge": "judge:JudgeTest",
    "train sft": "train:Sft",
    "train indexer": "train:IndexerCommand",
    "train grpo": "train:Grpo",
    "report": "evaluate:Report",
    "eval": "evaluate:Evaluate",
    "canaries": "datasets:CanariesCommand",
    "push": "hub:PushCommand",
    "pull": "hub:PullCommand",
    "serve env": "serve_env:ServeEnv",
    "serve policy": "models:Serve",
    "images bootstrap": "machine:Bootstrap",
    "images list": "machine:ListImages",
    "images clean": "machine:Clean",
}
"""Every command, as one uses them, and its class; the file is imported when the command is asked for.
``generate`` has a command for each family."""
GROUPS = {
    "": "Make, prove, step and filter reinforcement-learning environments for language-model agents.",
    "generate": "Generate environment datasets.",
    "corpus": "Make, search and describe corpora of documents.",
    "import": "Rebuild published records, and compare what they claim with what happens.",
    "model": "Make models, and tell what they cost.",
    "train": "Train policies: a cold start from teachers, then GRPO in the environments.",
    "serve": "Serve models and environments.",
    "images": "Language layers and built workspaces of code environments.",
}
RESUMED = (
    "generate", "import", "rollout", "inspect", "judge", "test-judge", "train", "eval", "quickstart",
)  # fmt: skip
"""Commands that store what they have finished, and go on from there."""
OS_HINTS = {
    errno.ENOSPC: "make room; what is finished is stored, the same command goes on from there",
    errno.EFBIG: "raise the file size limit (ulimit -f); what is finished is stored",
    errno.EACCES: "choose a path that you may write",
    errno.EROFS: "choose a path that you may write",
    errno.EMFILE: "raise the limit of open files (ulimit -n), or lower --concurrency",
}


HINTS: dict[type[EnvgenError], str] = {
    DatasetError: "check the path, or make a dataset: `envgen generate general --out ds/`",
    StoreError: "check the path; `envgen rollout` makes run folders",
    EnvgenError: "run the command again with `envgen --verbose` to see more",
}
"""What to do about an error that does not say it."""


class CommandGroup(click.Group):
    """Commands that are imported when they are asked for."""

    def __init__(self, words: str = "", **more: Any) -> None:
        super().__init__(words or "envgen", help=GROUPS[words], no_args_is_help=True, **more)
        self.prefix = f"{words} " if words else ""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, as one uses them."""
        below = (name for name in commands_in(self.prefix) if name.startswith(self.prefix))
        return list(dict.fromkeys(name[len(self.prefix) :].split()[0] for name in below))

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command or group of this name, imported now."""
        name = self.prefix + name
        if name in GROUPS:
            return CommandGroup(name)
        path = commands_in(self.prefix).get(name)
        return LeafCommand(name, imported(path)) if path else None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Name near commands where there is none of this name."""
        known = self.list_commands(ctx)
        if args and args[0] not in known:
            near = near_names(args[0], known)
            raise ConfigError(
                f"No such command {args[0]!r}{near}", f"see `{ctx.command_path} --help`"
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each command with the first line of its docstring, which is read and not imported."""
        with formatter.section("Commands"):
            names = self.list_commands(ctx)
            formatter.write_dl([(name, summary(self.prefix + name)) for name in names])


def commands_in(group: str) -> dict[str, str]:
    """Commands and the paths of their classes; families are only asked for theirs below ``generate``."""
    known = {name: path and f"envgen.cli.{path}" for name, path in COMMANDS.items()}
    if group != "generate ":
        return known
    families = (find_family(name) for name in family_names())
    return {f"generate {one.name}": one.command for one in families if one.command}


def summary(name: str) -> str:
    """One line about a command or group, read from its file."""
    if name in GROUPS:
        return GROUPS[name]
    group = name.rpartition(" ")[0]
    module, _, cls = commands_in(f"{group} " if group else "")[name].partition(":")
    found = find_spec(module)
    doc = texts(str(found.origin))[cls, ""] if found is not None else ""
    return " ".join(doc.partition("\n\n")[0].split())


class _LogLines(logging.Handler):
    """Each record as it is, unwrapped: a path in it can be copied."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print it."""
        try:
            remark(f"{time.strftime('%H:%M:%S')} {record.levelname}: {self.format(record)}")
        except Exception:  # as every handler: what can't be logged ends nothing
            self.handleError(record)


def _set_up(verbose: bool) -> None:
    """Set up the log of every command."""
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.WARNING,
        handlers=[_LogLines()],
        format="%(name)s: %(message)s",
        force=True,
    )


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"envgen {envgen.__version__}")
        ctx.exit()


app = CommandGroup(
    callback=_set_up,
    epilog="Start with `envgen quickstart`; `envgen COMMAND --help` shows examples.",
    params=[
        click.Option(["-v", "--verbose"], is_flag=True, help="Log what happens."),
        click.Option(
            ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_version,
            help="Print the version.",
        ),
    ],
)  # fmt: skip


def run(arguments: list[str] | None = None, *, stopped: Callable[[], bool] = lambda: False) -> int:
    """Run one command and return its exit code: 0, 1 (a check failed), 2 (an error) or 130 (Ctrl-C).

    Args:
        arguments: of the command line.
        stopped: whether a signal has asked for the end. An error is no news then: the signal may have
            come in the midst of a library that makes another exception of it (pydantic does).
    """
    wanted = sys.argv[1:] if arguments is None else arguments
    try:
        with readable_errors("see the command's --help for what is allowed"):
            code = app(args=wanted, prog_name="envgen", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except Exception as error:
        if not stopped():
            return _failed(error)
        logger.info("after the signal", exc_info=error)
        code = 130
    if code == 130:  # click may have made it of a KeyboardInterrupt
        goes_on = "; what is finished is stored, the same command goes on from there"
        remark("interrupted" + (goes_on if wanted[:1] and wanted[0] in RESUMED else ""))
    return code if isinstance(code, int) else 0


def _extra_of(module: str | None) -> str | None:
    """The extra that brings a module, if there is one and it is not installed."""
    from envgen.cli.machine import missing

    name = (module or "").partition(".")[0]
    lacking = missing().items()
    return next((e for e, names in lacking if name in [n.replace("-", "_") for n in names]), None)


def _failed(error: Exception) -> int:
    """Tell what went wrong; what is nobody's mistake but ours is raised again."""
    match error:
        case EnvgenError():
            general = next(hint for kind, hint in HINTS.items() if isinstance(error, kind))
            text, hint = str(error), error.hint or general
        case BrokenPipeError():
            sys.stderr.close()  # nobody reads any more; be silent at exit, too
            return 0
        case OSError():
            text, hint = str(error), OS_HINTS.get(error.errno or 0, "check the path")
        case ModuleNotFoundError() if extra := _extra_of(error.name):
            text = f"this needs {error.name}, which is not installed"
            hint = install_hint(extra)
        case click.exceptions.NoArgsIsHelpError():
            remark(error.format_message())
            return 2
        case click.UsageError():
            hint = f"see `{error.ctx.command_path if error.ctx else 'envgen'} --help`"
            text = error.format_message()
            if isinstance(error, click.NoSuchOption):
                near = near_names(error.option_name, error.possibilities or ())
                text = f"No such option {error.option_name!r}{near if 'did you' in near else ''}"
        case _:
            raise error
    for style, word, message in (("bold red", "error", text), ("bold", "hint", hint)):
        talk.print(Text.assemble((f"{word}: ", style), message), soft_wrap=True)
    return 2
