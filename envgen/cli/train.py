"""``envgen train``: cold start, GRPO and the indexer's stages."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer
from pydantic import BaseModel, ValidationError

from envgen.cli.console import out, progress, remark, say, table, write_json
from envgen.cli.options import Json, Out, Seed, Trust, examples, run_folder
from envgen.cli.outcome import require
from envgen.cli.step_rows import StepRows
from envgen.core.errors import ConfigError, MissingExtraError, install_hint
from envgen.core.registry import near_names

if TYPE_CHECKING:
    from envgen.train.cold_start import ColdStartSummary

C = TypeVar("C", bound=BaseModel)
HARDLY = 0.9
"""A loss that keeps more than this share of its first value tells that next to nothing was learnt."""
app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Data = Annotated[
    Path,
    typer.Option(
        "--data", metavar="DATASET", help="A dataset folder, or package:NAME.", show_default=False
    ),
]
Model = Annotated[
    Path, typer.Option("--model", metavar="FOLDER", help="A model folder.", show_default=False)
]
Override = Annotated[
    list[str] | None,
    typer.Option("-c", metavar="KEY=VALUE", help="Another setting, such as optimizer.lr=1e-3."),
]
Threads = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Of PyTorch. Default: one per core.")
]
Device = Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda, cuda:1, ...")]
Rollouts = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="RUN", help="Run folder of a teacher, made with `envgen rollout`; repeatable."
    ),
]
Teacher = Annotated[
    list[str] | None,
    typer.Option(
        metavar="POLICY",
        help="Play this policy first; repeatable. Default: gold.",
    ),
]
Split = Annotated[
    Literal["train", "validation", "test", "all"],
    typer.Option(metavar="NAME", help="Tasks of train, validation, test, or all."),
]


Epochs = Annotated[float, typer.Option(min=0, metavar="X", help="Passes over the rows.")]
Rate = Annotated[float, typer.Option(min=0, metavar="X", help="Learning rate.")]


@app.callback()
def _group() -> None:
    """Train policies: a cold start from teachers, then GRPO in the environments."""


@app.command(
    "sft",
    epilog=examples(
        "envgen train sft --data ds/ --model m/ --out runs/sft",
        "envgen train sft --data ds/ --model m/ --teacher hasty:0.6 --out s",
        "envgen train sft --data ds/ --model m/ --rollouts runs/x --passed-only -o s",
        "envgen train sft --data ds/ --model m/ --attention dense -o s",
    ),
)
def sft(
    data: Data,
    model: Model,
    out_path: Out,
    teacher: Teacher = None,
    episodes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Of each teacher, for every task.")
    ] = 1,
    rollouts: Rollouts = None,
    passed_only: Annotated[
        bool, typer.Option("--passed-only", help="Learn from passing rollouts only.")
    ] = False,
    split: Split = "train",
    epochs: Epochs = 1.0,
    lr: Rate = 1e-3,
    attention: Annotated[
        Literal["sparse", "dense"],
        typer.Option(
            metavar="HOW",
            help="sparse, or dense: no key is left out and the indexer waits, a model's first stage.",
        ),
    ] = "sparse",
    override: Override = None,
    seed: Seed = 0,
    threads: Threads = None,
    device: Device = "cpu",
    trust: Trust = False,
    json: Json = None,
) -> None:
    """Cold-start a policy: learn what teachers did, token by token.

    OUT/last is the model. The same command goes on where a stopped run left off.
    """
    settings: dict[str, Any] = {
        **_lessons(data, model, teacher, rollouts, split),
        **{"epochs": epochs, "seed": seed, "device": device, "trust": trust},
        **{"episodes": episodes, "passed_only": passed_only, "attention": attention},
        "optimizer": {"lr": lr, "indexer": "frozen" if attention == "dense" else "eq4"},
    }
    _teach("cold start", settings, override, out_path, threads, json)


@app.command(
    "indexer",
    epilog=examples(
        "envgen train indexer --stage warmup --data ds/ --model m/ --out w",
        "envgen train indexer --stage sparse --data ds/ --model w/last --out s",
    ),
)
def indexer(
    stage: Annotated[
        Literal["warmup", "sparse"],
        typer.Option(
            metavar="NAME",
            help="warmup: eq. 3, attention dense, trunk frozen. sparse: eq. 4, the trunk learns too.",
            show_default=False,
        ),
    ],
    data: Data,
    model: Model,
    out_path: Out,
    teacher: Teacher = None,
    rollouts: Rollouts = None,
    split: Split = "train",
    epochs: Epochs = 1.0,
    lr: Rate = 1e-3,
    override: Override = None,
    seed: Seed = 0,
    threads: Threads = None,
    device: Device = "cpu",
    trust: Trust = False,
    json: Json = None,
) -> None:
    """Teach the lightning indexer where attention looks.

    Learns from what teachers did, like the cold start. OUT/last is the model.
    """
    warmup = stage == "warmup"
    settings: dict[str, Any] = {
        **_lessons(data, model, teacher, rollouts, split),
        **{"epochs": epochs, "seed": seed, "device": device, "trust": trust},
        "attention": "dense" if warmup else "sparse",
        "trunk": "frozen" if warmup else "learns",
        "optimizer": {"indexer_lr": lr},
    }
    _teach(f"indexer, {stage}", settings, override, out_path, threads, json)


@app.command(
    "grpo",
    epilog=examples(
        "envgen train grpo --data ds/ --model runs/sft/last --out runs/grpo",
        "envgen train grpo --data ds/ --model m/ --groups 32 --steps 200 --out g",
        "envgen train grpo --data ds/ --model m/ -c objective.kl_coef=0.01 -o g",
        "envgen train grpo --data ds/ --model m/ -c tasks.kind=band --out g",
        "envgen train grpo --data ds/ --model m/ -c eval.every=10 --out g",
    ),
)
def grpo(
    data: Data,
    model: Model,
    out_path: Out,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Batches of rollouts.")] = 100,
    groups: Annotated[int, typer.Option(min=1, metavar="N", help="Tasks in a batch.")] = 16,
    group_size: Annotated[int, typer.Option(min=2, metavar="N", help="Rollouts of each task.")] = 8,
    temperature: Annotated[float, typer.Option(metavar="X", help="Of the sampler.")] = 1.0,
    top_p: Annotated[float, typer.Option(max=1, metavar="X", help="Nucleus sampling.")] = 1.0,
    lr: Rate = 3e-4,
    split: Split = "train",
    override: Override = None,
    seed: Seed = 0,
    threads: Threads = None,
    device: Device = "cpu",
    trust: Trust = False,
    json: Json = None,
) -> None:
    """Train a policy in the environments of a dataset, by GRPO after DeepSeek-V3.2.

    OUT/last is the model, OUT/metrics.jsonl the curves (OUT/tensorboard, too), OUT/report.html shows
    them. The same command goes on where a stopped run left off, with the same steps to the bit.
    """
    with progress("GRPO") as update:
        require_extra()
        from envgen.report.html import write_report
        from envgen.report.training import training_report
        from envgen.train.grpo_run import TrainGRPOConfig, train_grpo
        from envgen.train.rollouts import SamplingConfig

        plain = TrainGRPOConfig(
            data=str(data),
            model=str(model),
            split=None if split == "all" else split,
            steps=steps,
            sampling=SamplingConfig(
                groups=groups, group_size=group_size, temperature=temperature, top_p=top_p
            ),
            seed=seed,
            device=device,
            trust=trust,
        )
        plain = plain.model_copy(
            update={"optimizer": plain.optimizer.model_copy(update={"lr": lr})}
        )
        config = overridden(plain, override)
        run_folder(out_path)
        _use(threads, config.device)
        rows = StepRows(config.steps)
        summary = train_grpo(config, out_path, progress=update, watch=rows.show)
        report = write_report(out_path / "report.html", training_report(out_path))
    shown = table("what", "value ", title=str(out_path))
    rate = "-" if summary.pass_rate is None else f"{summary.pass_rate:.3f}"
    for what, value in (
        ("steps", str(summary.steps)),
        ("rollouts", str(summary.rollouts)),
        ("model tokens", str(summary.tokens)),
        ("pass rate, last step", rate),
        ("seconds", f"{summary.seconds:.1f}"),
        ("of these sampling", f"{summary.sampling_seconds:.1f}"),
        ("and updates", f"{summary.update_seconds:.1f}"),
        ("assembly of batches, of a step", _percent(summary.assembly_share)),
    ):
        shown.add_row(what, value)
    out.print(shown)
    say(f"report: {report}")
    write_json(json, summary)


def add_commands(parent: typer.Typer) -> None:
    """Add this module's commands to ``parent``."""
    parent.add_typer(app, name="train")


def overridden(config: C, items: list[str] | None) -> C:
    """``config`` with ``a.b=value`` settings; a value is JSON, or text where it is none.

    Raises:
        ConfigError: if a text has no such form, a key is unknown, or a value does not fit.
    """
    fields = config.model_dump()
    for item in items or ():
        key, equals, text = item.partition("=")
        if not equals or not key:
            raise ConfigError(f"{item!r} sets nothing", "write -c key=value")
        try:
            value = jsonlib.loads(text)
        except ValueError:
            value = text
        *parents, last = key.split(".")
        place: Any = fields
        for name in parents:
            place = _within(place, name, key)
        _within(place, last, key)
        place[last] = value
    try:
        return type(config).model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(
            f"{'.'.join(map(str, first['loc']))}: {first['msg']}, got {first['input']!r}",
            "see the setting's kind in the run's settings.json",
        ) from error


def require_extra() -> None:
    """Tell what to install where the packages that train are missing.

    Raises:
        MissingExtraError: without them.
    """
    for name in ("torch", "tokenizers", "safetensors"):
        try:
            import_module(name)
        except ImportError as error:
            raise MissingExtraError(
                f"training needs {name}, which is not installed", install_hint("train")
            ) from error


def _within(place: Any, name: str, key: str) -> Any:
    """What is under a name of nested settings."""
    if isinstance(place, Mapping) and name in place:
        return place[name]
    known = sorted(place) if isinstance(place, Mapping) else []
    raise ConfigError(
        f"there is no setting {key!r}{near_names(name, known)}",
        f"there are {', '.join(known)}" if known else "it has no parts",
    )


def _lessons(
    data: Path, model: Path, teacher: list[str] | None, rollouts: list[Path] | None, split: str
) -> dict[str, Any]:
    """Who is taught what: settings of the cold start and of the indexer's stages."""
    return {
        "data": str(data),
        "model": str(model),
        "rollouts": tuple(map(str, rollouts or ())),
        "teachers": tuple(teacher or (() if rollouts else ("gold",))),
        "split": None if split == "all" else split,
    }


def _teach(
    what: str,
    settings: Mapping[str, Any],
    override: list[str] | None,
    out_path: Path,
    threads: int | None,
    json: Path | None,
) -> None:
    """Learn from teachers, and tell how it went."""
    with progress(what) as update:
        require_extra()
        from envgen.train.cold_start import ColdStartConfig, train_sft

        config = overridden(ColdStartConfig.model_validate(settings), override)
        run_folder(out_path)
        _use(threads, config.device)
        summary = train_sft(config, out_path, progress=update)
    _tell_taught(summary, "indexer's loss" if config.trunk == "frozen" else "loss", out_path, json)


def _tell_taught(summary: ColdStartSummary, loss: str, out_path: Path, json: Path | None) -> None:
    shown = table("what", "value ", title=str(out_path))
    held = "-" if summary.validation_loss is None else f"{summary.validation_loss:.4f}"
    for what, value in (
        ("rows", str(summary.rows)),
        ("steps", str(summary.steps)),
        (f"{loss}, first step", f"{summary.first_loss:.4f}"),
        (f"{loss}, last step", f"{summary.loss:.4f}"),
        ("replies' loss on rows set aside", held),
        ("tokens per second", f"{summary.tokens_per_second:.0f}"),
        ("seconds", f"{summary.seconds:.1f}"),
    ):
        shown.add_row(what, value)
    out.print(shown)
    write_json(json, summary)
    require(summary.steps, None, "steps: nothing was learnt", "--epochs is above 0")
    if summary.loss > HARDLY * summary.first_loss > 0:
        remark(
            f"warning: {summary.steps} steps on {summary.rows} rows took the {loss} from "
            f"{summary.first_loss:.2f} to {summary.loss:.2f}: hardly anything was learnt; more rows "
            "(--episodes, variants) or --epochs"
        )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _use(threads: int | None, device: str) -> None:
    """Set PyTorch's threads, and try the device before any work is done for it."""
    import os

    import torch

    torch.set_num_threads(threads or os.cpu_count() or 1)
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:  # PyTorch without CUDA asserts
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"there is no device {device!r} here: {reason}", "--device cpu"
        ) from error
