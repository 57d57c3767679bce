"""A command is a config with an ``execute``: its fields are the options, its docstring is the help.

Names, kinds, defaults and texts of options are those of the fields, wherever the config lives; a class
here only says which fields stand on the line (``names``, ``places``) and what to do with the outcome.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import click
from pydantic import Field, ValidationError

import envgen
from envgen.cli.console import OnProgress, figures_on_stdout, progress
from envgen.cli.records import show_record, write_json
from envgen.cli.settings import (
    Setting,
    Values,
    check_names,
    choices,
    complete,
    holds,
    is_text,
    members,
    public,
    put,
    read_file,
    settings,
    template,
)
from envgen.core.errors import ConfigError, EnvgenError, MissingExtraError, install_hint
from envgen.core.types import Record

if TYPE_CHECKING:
    from envgen.store.dataset import Dataset

COMMAND_FILE = "command.json"
"""The resolved settings of the command that filled a folder; ``--config`` reads it."""
COMMON = {
    "-o --out PATH": "out",
    "--json FILE": "figures",
    "--task ID": "task_ids",
    "--max-cost USD": "max_cost_usd",
    "--db URL": "db_url",
}
"""Options that are not named after their field in any command."""
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
    """Options that are named otherwise than their field, or set a field of a table: option -> path."""
    places: ClassVar[Mapping[str, str]] = {}
    """Arguments without a name: how help calls each -> field."""
    examples: ClassVar[tuple[str, ...]] = ()
    verb: ClassVar[str] = ""
    """The function, ``envgen.rollout.run:rollout``; imported when the command runs, not for its help."""

    figures: Path | None = None
    """Also write the figures to this file; -: to stdout, and the rest to stderr."""

    @classmethod
    def settle(cls, given: Values) -> Values:
        """The settings that were given, with what follows from them."""
        return given

    def execute(self) -> None:
        """Run the function, and tell what came of it."""
        with progress(self.verb.rpartition(":")[2].replace("_", " ")) as update:
            summary = self.call({"progress": update, **self.inputs(update)})
        self.show(summary)
        write_json(self.figures, summary)
        self.check(summary)

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

    def show(self, summary: Any) -> None:
        """Print what came of it."""
        show_record(summary)

    def check(self, summary: Any) -> None:
        """Warn where less came of it than was asked for, and fail where nothing did."""


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
    for mark, what in TAKEN.items():
        if (path / mark).exists():
            raise ConfigError(f"--out {str(path)!r} is {what}", "choose another --out")
    if path.exists() and not path.is_dir():
        raise ConfigError(f"--out {str(path)!r} is a file", "choose another --out")
    return path


class ReadsDataset(Command):
    """A command that opens a dataset."""

    places: ClassVar[Mapping[str, str]] = {"DATASET": "dataset"}

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


class Parallel(Command):
    """A command that works in several processes."""

    workers: int | None = Field(default=None, ge=1)
    """Processes. None: one per core."""


def imported(name: str) -> Any:
    """What ``module:name`` names."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def require_trainers() -> None:
    """Tell what to install where packages that train are missing.

    Raises:
        MissingExtraError: without them.
    """
    for name in TRAINERS:
        try:
            importlib.import_module(name)
        except ImportError as error:
            what = f"training needs {name}, which is not installed"
            raise MissingExtraError(what, install_hint("train")) from error


class FieldOption(click.Option):
    """An option that sets one setting."""

    def __init__(self, spec: str, setting: Setting) -> None:
        words = spec.split()
        flags = [word for word in words if word.startswith("-")]
        kind = setting.field.annotation
        flag = members(kind) == (bool,)
        if flag and setting.default is not False and not any("/" in word for word in flags):
            flags = [f"{flags[0]}/--no-{flags[0].removeprefix('--')}"]
        super().__init__(
            [*flags, setting.path.replace(".", "__")],
            is_flag=flag,
            help=setting.text + _bounds(setting),
            metavar=None if flag else next((w for w in words if w not in flags), _metavar(kind)),
            multiple=bool(holds(kind, tuple, frozenset, dict)),
            default=None,
        )


class LeafCommand(click.Command):
    """A command as click sees it: texts in, a checked ``Command`` out."""

    def __init__(self, name: str, kind: type[Command]) -> None:
        self.kind = kind
        self.settings = settings(kind)
        doc = (kind.__doc__ or "").strip()
        self.words = name
        super().__init__(name.rpartition(" ")[2], help=doc, params=list(self._params()))
        self.epilog = "\n".join(kind.examples)

    def _params(self) -> Iterator[click.Parameter]:
        for shown, path in self.kind.places.items():
            text = self.settings[path].text
            yield click.Argument([path], required=False, metavar=shown, help=text)
        for spec, setting in sorted(self.options(), key=_order):
            yield FieldOption(spec, setting)
        yield click.Option(
            ["-c", "_set"], multiple=True, metavar="KEY=VALUE",
            help="Any setting by its path, such as seed=1; repeatable. --settings prints all.",
        )  # fmt: skip
        yield click.Option(
            ["--config", "_config"], metavar="FILE",
            help=f"Settings in TOML, or a run's {COMMAND_FILE}; options stand above them.",
        )  # fmt: skip
        yield click.Option(
            ["--settings", "_settings"], is_flag=True,
            help="Print all settings with their texts and defaults as TOML, and exit.",
        )  # fmt: skip

    def options(self) -> Iterator[tuple[str, Setting]]:
        """Option -> setting: those with a name of their own, and the fields outside of tables."""
        named = {**{o: p for o, p in COMMON.items() if p in self.settings}, **self.kind.names}
        taken = {*named.values(), *self.kind.places.values()}
        words = {word for spec in named for word in spec.split()}
        for path, setting in self.settings.items():
            for spec in (spec for spec, target in named.items() if target == path):
                yield spec, setting
            own = "--" + path.replace("_", "-")
            top = "." not in path and not holds(setting.field.annotation, dict)
            if top and path not in taken and own not in words:
                yield own, setting

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
        for path, words in (*self._options(ctx), *_pairs(ctx.params["_set"])):
            put(self.kind, values, path, words)
        check_names(self.kind, values)
        values = complete(self.kind, self.kind.settle(complete(self.kind, values)))
        with told(f"see `{ctx.command_path} --help`", self._shown):
            return self.kind.model_validate(values)

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
                return param.opts[-1] if isinstance(param, FieldOption) else str(param.metavar)
        return f"-c {path}"

    def invoke(self, ctx: click.Context) -> None:
        """Run, and leave the resolved settings in the folder that was filled."""
        command: Command = ctx.obj
        figures_on_stdout(command.figures)
        try:
            command.execute()
        except (click.exceptions.Exit, KeyboardInterrupt):
            self._leave(command)
            raise
        self._leave(command)

    def _leave(self, command: Command) -> None:
        folder = Path(str(getattr(command, "out", "") or ""))
        if "out" not in type(command).model_fields or not folder.is_dir():
            return
        held = command.model_dump(mode="json", exclude={"figures"})
        write = {"command": self.words, "envgen": envgen.__version__, **public(held)}
        text = json.dumps(write, indent=2, ensure_ascii=False) + "\n"
        path = folder / COMMAND_FILE
        if any((folder / mark).is_file() for mark in EXCHANGED):
            whole = folder.resolve()
            path = whole.with_name(f"{whole.name}.{COMMAND_FILE}")
        path.write_text(text, encoding="utf-8", errors="backslashreplace")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Commands to copy."""
        formatter.write("\nExamples:\n" + "".join(f"  {line}\n" for line in self.kind.examples))


@contextmanager
def told(hint: str, shown: Any = str) -> Iterator[None]:
    """Make one line of what pydantic refuses.

    Args:
        hint: what the reader can do.
        shown: how the reader names a setting, by its path.

    Raises:
        ConfigError: with every fault, each with the name, what is allowed and what was given.
    """
    try:
        yield
    except ValidationError as error:
        found = []
        for one in error.errors(include_url=False):
            inner = one.get("ctx", {}).get("error")
            if isinstance(inner, EnvgenError):
                raise ConfigError(str(inner), inner.hint or hint) from error
            path = ".".join(str(part) for part in one["loc"] if isinstance(part, str))
            if one["type"] == "missing":
                name = shown(path)
                found.append(f"Missing {'option' if name.startswith('-') else 'argument'} {name!r}")
                continue
            got = public(one["input"], path.rpartition(".")[2])
            end = f", got {str(got)[:80]!r}" if path else ""  # a whole config tells nobody anything
            what = one["msg"].removeprefix("Value error, ")
            found.append(f"{shown(path)}: {what}{end}" if path else what)
        raise ConfigError("; ".join(dict.fromkeys(found)), hint) from error


def _pairs(items: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    for item in items:
        path, equals, word = item.partition("=")
        if not equals or not path:
            raise ConfigError(f"{item!r} sets nothing", "write -c KEY=VALUE")
        yield path, [word]


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
