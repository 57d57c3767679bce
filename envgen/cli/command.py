"""A command is a config with an ``execute``: its fields are the options, its docstring is the help.

Names, kinds, defaults and texts of options are those of the fields, wherever the config lives; a class
here only says which fields stand on the line (``names``, ``places``) and what to do with the outcome.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import click
from pydantic import BaseModel, Field, ValidationError

import envgen
from envgen.cli.console import OnProgress, figures_on_stdout, progress
from envgen.cli.records import show_record, write_json
from envgen.cli.settings import (
    Setting,
    Values,
    choices,
    complete,
    field_names,
    holds,
    is_text,
    members,
    pair,
    public,
    put,
    read_file,
    settings,
    template,
)
from envgen.core.errors import ConfigError, EnvgenError, MissingExtraError, install_hint
from envgen.core.registry import near_names
from envgen.core.types import Record

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from envgen.store.dataset import Dataset

COMMAND_FILE = "command.json"
"""The resolved settings of the command that filled a folder; ``--config`` reads it."""
COMMON = {
    "-o --out PATH": "out",
    "--json FILE": "figures",
    "--task ID": "task_ids",
    "--max-cost USD": "max_cost_usd",
    "--db URL": "db_url",
    "--k LIST": "ks",
    "--policy POLICY": "policy.spec",
    "--option NAME=VALUE": "policy.options",
    "--temperature": "sampling.temperature",
    "--top-p": "sampling.top_p",
    "--max-tokens": "sampling.max_tokens",
    "--lr": "optimizer.lr",
    "--repeats": "validation.repeats",
    "--more": "validation.more",
    "--only-touched": "validation.only_touched",
    "--backend": "build.backend",
    "--layer": "build.layer",
    "--certificates FILE": "build.certificates",
    "--downloads DIR": "build.downloads",
    "--allow-missing": "build.allow_missing",
}
"""Options that are not named after their field, in any command that has the setting: option -> path."""
EXCHANGED = ("dataset.json", "model.safetensors")
"""Files of folders whose bytes follow from their content alone: the command's file stands beside those."""
TAKEN = {"dataset.json": "a dataset", "run.json": "a run of `envgen rollout`"}
"""Files that tell whose a folder is."""
TRAINERS = ("torch", "tokenizers", "safetensors")
"""Packages of the extra ``train``."""
METAVARS = {int: "N", float: "X", Path: "PATH", str: "TEXT"}
WIDEST_BOUND = 1 << 32
"""Bounds beyond it only keep hostile numbers out; help does not name them."""


class Command(Record):
    """Base of all commands: runs a room's function with the settings, and shows the record it gives.

    A command that does something else overrides ``execute``.
    """

    names: ClassVar[Mapping[str, str]] = {}
    """Options that are named otherwise than their field, or set a field of a table, beside ``COMMON``."""
    places: ClassVar[Mapping[str, str]] = {}
    """Arguments without a name, beside the dataset: how help calls each -> field."""
    hidden: ClassVar[frozenset[str]] = frozenset()
    """Fields whose options work but are not in help: another option says the same."""
    examples: ClassVar[tuple[str, ...]] = ()
    verb: ClassVar[str] = ""
    """The function, ``envgen.rollout.run:rollout``; imported when the command runs, not for its help."""

    figures: Path | None = None
    """Also write the figures to this file; -: to stdout, and the rest to stderr."""

    @classmethod
    def settle(cls, given: Values) -> None:
        """Add what follows from the settings that were given, table in table."""

    def execute(self) -> None:
        """Run the function, and tell what came of it."""
        with progress(self.verb.rpartition(":")[2].replace("_", " ")) as update:
            summary = self.call({"progress": update, **self.inputs(update)})
        write_json(self.figures, summary)
        self.tell(summary)

    def inputs(self, update: OnProgress) -> dict[str, Any]:
        """Arguments of the function that are no settings; what can't work is refused here."""
        return {}

    def call(self, more: Mapping[str, Any]) -> Any:
        """Call the function: a parameter takes the setting of its name, and ``config`` the room's config."""
        verb = imported(self.verb)
        held = {**vars(self), "config": self.config(), **more}
        return verb(**{name: held[name] for name in signature(verb).parameters if name in held})

    def config(self) -> Any:
        """The room's own config, of which this command has all fields; None: it has none."""
        for kind in type(self).__mro__:
            if issubclass(kind, Record) and kind is not Record and not issubclass(kind, Command):
                return kind.model_validate(
                    {name: getattr(self, name) for name in kind.model_fields}
                )
        return None

    def tell(self, summary: Any) -> None:
        """Print what came of it; warn where that is less than was asked for, and fail where it is nothing."""
        show_record(summary)


class Makes(Command):
    """A command that fills a folder."""

    out: Path
    """Where to write."""


def run_folder(path: str | Path) -> Path:
    """``path``, where a run may be written: it is no file, and nothing else's folder.

    Raises:
        ConfigError: if it is.
    """
    path = Path(path)
    held = [what for mark, what in TAKEN.items() if (path / mark).exists()]
    if held or path.is_file():
        what = held[0] if held else "a file"
        raise ConfigError(f"--out {str(path)!r} is {what}", "choose another --out")
    return path


class ReadsDataset(Command):
    """A command that opens a dataset."""

    dataset: Path
    unproven: bool = False

    def opened(self) -> Dataset:
        """Open what the user named."""
        from envgen.environments.hosts import open_dataset

        return open_dataset(self.dataset, unproven=self.unproven)

    def inputs(self, update: OnProgress) -> dict[str, Any]:
        """The dataset's folder, whether it was named by path or ``package:NAME``."""
        return {"dataset": self.opened().path}


class Runs(Command):
    """A command that runs a dataset's or generated code."""

    backend: Literal["auto", "bubblewrap", "docker", "process", "inline"] = "auto"


class Trusts(Runs):
    """A command that runs a dataset's code."""

    trust: bool = False


class BringsCorpus(Command):
    """A command that may need the corpus of a dataset's questions."""

    corpus: Path | None = None
    """The corpus that search questions are about, where it isn't in the cache folder yet: file or folder."""

    def execute(self) -> None:
        """Put the corpus where datasets find it, and go on."""
        if self.corpus is not None:
            from envgen.store.corpus import Corpus

            Corpus(self.corpus).remember()
        super().execute()


class Parallel(Command):
    """A command that works in several processes."""

    workers: int | None = Field(default=None, ge=1)
    """Processes. None: one per core."""


def imported(name: str) -> Any:
    """What ``module:name`` names."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def lacks_trainers() -> list[str]:
    """Packages that train and are not installed."""
    return [name for name in TRAINERS if find_spec(name) is None]


def require_trainers() -> None:
    """Tell what to install where packages that train are missing.

    Raises:
        MissingExtraError: without them.
    """
    if gone := lacks_trainers():
        what = f"training needs {gone[0]}, which is not installed"
        raise MissingExtraError(what, install_hint("train"))


def field_option(spec: str, setting: Setting) -> click.Option:
    """The option that sets one setting: ``-o --out PATH``, or its name alone."""
    words, flags = spec.split(), _flags(spec)
    kind = setting.field.annotation
    flag = members(kind) == (bool,)
    if flag and setting.default is not False and "/" not in spec:
        flags = [f"{flags[0]}/--no-{flags[0].removeprefix('--')}"]
    return click.Option(
        [*flags, setting.path.replace(".", "__")],
        is_flag=flag,
        help=setting.text + _bounds(setting),
        metavar=None if flag else next((w for w in words if w not in flags), _metavar(kind)),
        multiple=bool(holds(kind, tuple, frozenset, dict)),
        default=None,
    )


def _flags(spec: str) -> list[str]:
    return [word for word in spec.split() if word.startswith("-")]


SETTINGS_OPTIONS = (
    click.Option(
        ["-c", "_set"], multiple=True, metavar="KEY=VALUE",
        help="Any setting by its path, such as seed=1; repeatable. --settings prints all.",
    ),
    click.Option(
        ["--config", "_config"], metavar="FILE",
        help=f"Settings in TOML, or a run's {COMMAND_FILE}; options stand above them.",
    ),
    click.Option(
        ["--settings", "_settings"], is_flag=True,
        help="Print all settings with their texts and defaults as TOML, and exit.",
    ),
)  # fmt: skip
"""Options of every command."""


class LeafCommand(click.Command):
    """A command as click sees it: texts in, a checked ``Command`` out."""

    def __init__(self, name: str, kind: type[Command]) -> None:
        self.words, self.kind, self.settings = name, kind, settings(kind)
        data = self.settings.keys() & {"dataset", "data"} - set(kind.names.values())
        self.places = dict.fromkeys(data, "DATASET") | {
            p: shown for shown, p in kind.places.items()
        }
        arguments = [
            click.Argument(
                [path],
                required=False,
                metavar=shown,
                help=self.settings[path].text,
                nargs=-1 if holds(self.settings[path].field.annotation, tuple) else 1,
            )
            for path, shown in self.places.items()
        ]
        options = [field_option(*one) for one in sorted(self.options(), key=_order)]
        for option in options:
            option.hidden = _path(option) in kind.hidden
        super().__init__(
            name.rpartition(" ")[2],
            help=(kind.__doc__ or "").strip(),
            params=[*arguments, *options, *SETTINGS_OPTIONS],
            epilog="\n".join(kind.examples),
        )

    def options(self) -> Iterator[tuple[str, Setting]]:
        """Option -> setting: those with a name of their own, and the fields outside of tables."""
        own = {path: spec for spec, path in self.kind.names.items()}
        taken = {flag for spec in own.values() for flag in _flags(spec)}
        alike = {path: spec for spec, path in COMMON.items() if taken.isdisjoint(_flags(spec))}
        named = {path: spec for path, spec in {**alike, **own}.items() if path in self.settings}
        taken |= {flag for spec in named.values() for flag in _flags(spec)}
        for path, setting in self.settings.items():
            plain = "--" + path.replace("_", "-")
            inside = "." in path or holds(setting.field.annotation, dict)
            if path in named:
                yield named[path], setting
            elif not (inside or path in self.places or plain in taken):
                yield plain, setting

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, and check what was read; the command is ``ctx.obj``."""
        rest = super().parse_args(ctx, args)
        if ctx.params["_settings"]:
            click.echo(template(self.kind, self.words), nl=False)
            ctx.exit()
        ctx.obj = self.read(ctx)
        return rest

    def read(self, ctx: click.Context) -> Command:
        """The command that a line asks for.

        Raises:
            ConfigError: if a setting is unknown or wrong; the hint names the help.
        """
        values = self._file(ctx.params["_config"])
        for path, words in self._options(ctx):
            put(self.kind, values, path, words)
        for path, word in (pair(item, "-c KEY=VALUE") for item in ctx.params["_set"]):
            put(self.kind, values, path, [word])
        self.kind.settle(values)
        with readable_errors(f"see `{ctx.command_path} --help`", self.kind, self._shown):
            return self.kind.model_validate(complete(self.kind, values))

    def _file(self, name: str | None) -> Values:
        """What ``--config`` says."""
        values = read_file(Path(name)) if name else {}
        if (meant := values.pop("command", self.words)) != self.words:
            hint = f"run `envgen {meant} --config {name}`"
            raise ConfigError(f"{name!r} holds settings of `envgen {meant}`", hint)
        values.pop("envgen", None)
        return values

    def _options(self, ctx: click.Context) -> Iterator[tuple[str, list[str]]]:
        """What stands on the line: setting -> words."""
        for param in self.params:
            value, path = ctx.params.get(param.name or ""), _path(param)
            if path in self.settings and value not in (None, ()):
                words = value if isinstance(value, tuple) else (value,)
                yield path, [str(word).lower() if word in (True, False) else word for word in words]

    def _shown(self, path: str) -> str:
        """How a user names a setting, or the table that misses it."""
        for param in self.params:
            if f"{_path(param)}.".startswith(f"{path}."):
                return param.opts[-1] if isinstance(param, click.Option) else str(param.metavar)
        return f"-c {path}"

    def invoke(self, ctx: click.Context) -> None:
        """Run, and leave the resolved settings in the folder that was filled."""
        command: Command = ctx.obj
        figures_on_stdout(command.figures)
        try:
            command.execute()
        except (click.exceptions.Exit, KeyboardInterrupt):
            self.leave(command)
            raise
        self.leave(command)

    def leave(self, command: Command) -> None:
        """Write the resolved settings into the folder that was filled, or beside a dataset or model."""
        folder = Path(getattr(command, "out", None) or os.devnull).resolve()
        if not folder.is_dir():
            return
        held = command.model_dump(mode="json", exclude={"figures"})
        write = {"command": self.words, "envgen": envgen.__version__, **public(held)}
        text = json.dumps(write, indent=2, ensure_ascii=False) + "\n"
        path = folder / COMMAND_FILE
        if any((folder / mark).is_file() for mark in EXCHANGED):
            path = folder.with_name(f"{folder.name}.{COMMAND_FILE}")
        path.write_text(text, encoding="utf-8", errors="backslashreplace")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Commands to copy."""
        formatter.write("\nExamples:\n" + "".join(f"  {line}\n" for line in self.kind.examples))


@contextmanager
def readable_errors(
    hint: str, kind: type[BaseModel] | None = None, shown: Callable[[str], str] = str
) -> Iterator[None]:
    """Make one line of what pydantic refuses in the settings of ``kind``; ``shown`` names one by its path.

    Raises:
        ConfigError: with every fault, each with the name, what is allowed and what was given.
    """
    try:
        yield
    except ValidationError as error:
        found = error.errors(include_url=False)
        for one in found:
            inner = one.get("ctx", {}).get("error")
            if isinstance(inner, EnvgenError):
                raise ConfigError(str(inner), inner.hint or hint) from error
        faults = dict.fromkeys(_fault(one, kind, shown) for one in found)
        raise ConfigError("; ".join(faults), hint) from error


def _fault(one: ErrorDetails, kind: type[BaseModel] | None, shown: Callable[[str], str]) -> str:
    path = ".".join(str(part) for part in one["loc"] if isinstance(part, str))
    table, _, name = path.rpartition(".")
    if one["type"] == "missing":
        called = shown(path)
        return f"Missing {'option' if called.startswith('-') else 'argument'} {called!r}"
    if one["type"] == "extra_forbidden" and kind and (known := field_names(kind, table)):
        return f"unknown setting {path!r}{near_names(name, known)} --settings prints all"
    got = str(public(one["input"], name))[:80]
    if one["type"] == "model_type":
        return f"{path!r} is a table, not {got!r}: write -c {path}.NAME=VALUE"
    what = one["msg"].removeprefix("Value error, ")
    # Of a fault that lies between fields no input is told: it would be the whole config.
    return f"{shown(path)}: {what}, got {got!r}" if path else what


def _order(option: tuple[str, Setting]) -> int:
    """Required options first, ``--json`` last."""
    return 0 if option[1].required else 1 + (option[1].path == "figures")


def _path(param: click.Parameter) -> str:
    """The setting that an argument or option is for."""
    return (param.name or "").replace("__", ".")


def _metavar(kind: Any) -> str:
    inside = holds(kind, tuple, frozenset)
    if inside:
        return "LIST" if not is_text(inside.__args__[0]) else _metavar(inside.__args__[0])
    if holds(kind, dict):
        return "NAME=VALUE"
    return next((METAVARS[one] for one in members(kind) if one in METAVARS), "NAME")


def _bounds(setting: Setting) -> str:
    """The end of an option's help: what is allowed, and the default."""
    kind, default = setting.field.annotation, setting.default
    found = []
    inside = holds(kind, tuple, frozenset)
    if names := choices(inside.__args__[0] if inside else kind):
        found.append(", ".join(map(str, names)))
    if inside and is_text(inside.__args__[0]):
        found.append("repeatable")
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    for one in setting.field.metadata:
        for key, sign in signs.items():
            bound = getattr(one, key, None)
            if isinstance(bound, int | float) and abs(bound) < WIDEST_BOUND:
                found.append(f"x{sign}{bound:g}")
    if setting.required:
        found.append("required")
    elif isinstance(default, tuple) and default:
        found.append(f"default: {','.join(map(str, default))}")
    elif default not in (None, False, (), "") and not isinstance(default, dict):
        found.append(f"default: {'on' if default is True else default}")
    return f"  [{'; '.join(found)}]" if found else ""
