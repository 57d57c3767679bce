"""``envgen model``: make models, and tell what they cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from envgen.cli.console import heading, out, prose, table, write_json
from envgen.cli.options import Json, Out, Seed, Unproven, examples, open_dataset
from envgen.cli.outcome import require
from envgen.core.errors import ConfigError

if TYPE_CHECKING:
    from envgen.model.config import DSAConfig
    from envgen.model.cost import Cost

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
INIT_EXAMPLES = examples(
    "envgen model init --preset tiny --tokenizer ds/ --out m/",
    "envgen model init --preset small --tokenizer m/ --out m2/ -c index_topk=128",
    "envgen model init --preset tiny --tokenizer ds/ --encoding dsml --out m3/",
)
INFO_EXAMPLES = examples(
    "envgen model info m/", "envgen model info --preset deepseek-v3.2 --context 131072"
)
LONGEST_DEFAULT = 131_072

Preset = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="tiny, small, medium, large or deepseek-v3.2.", show_default=False
    ),
]


@app.callback()
def _group() -> None:
    """Make models, and tell what they cost."""


@app.command("init", epilog=INIT_EXAMPLES)
def init(
    preset: Preset,
    tokenizer: Annotated[
        Path,
        typer.Option(
            metavar="PATH",
            help="A dataset to train one on, or a folder with a tokenizer.json to copy.",
            show_default=False,
        ),
    ],
    out_path: Out,
    encoding: Annotated[
        Literal["compact", "dsml"] | None,
        typer.Option(
            metavar="NAME", help="compact or dsml. Default: compact, or the copied tokenizer's."
        ),
    ] = None,
    vocab_size: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Tokens. Default: as the preset or the copy has."),
    ] = None,
    entity_tokens: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Names that tools return, most used first, as one token each."
        ),
    ] = 0,
    line_tokens: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Lines that many prompts have in common, as one token each."
        ),
    ] = 0,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "-c",
            metavar="KEY=VALUE",
            help="Another field of config.json, rope.KEY or encoding.KEY; repeatable.",
        ),
    ] = None,
    seed: Seed = 0,
    unproven: Unproven = False,
    json: Json = None,
) -> None:
    """Make a model folder: configuration, random weights, tokenizer, encoding."""
    from envgen.model.config import preset as find
    from envgen.policies.new_model import NewModelConfig, new_model, parse_overrides

    find(preset)  # a wrong name is told before a dataset is opened
    model, spoken = parse_overrides(override or ())
    if encoding:
        spoken["kind"] = encoding
    config = NewModelConfig(
        preset=preset,
        model=model,
        encoding=spoken,
        vocab_size=vocab_size,
        entity_tokens=entity_tokens,
        line_tokens=line_tokens,
        seed=seed,
    )
    source = tokenizer
    if not (source / "tokenizer.json").is_file():
        source = open_dataset(tokenizer, unproven=unproven).path
    found = new_model(config, source, out_path, unproven=unproven)
    _show(found, None, str(out_path), json, _folder_figures(out_path), brief=True)
    require(found.vocab_size, vocab_size, "tokens in the vocabulary", "the texts have no more")


@app.command("info", epilog=INFO_EXAMPLES)
def info(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[MODEL]", help="A model folder.", show_default=False)
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A preset instead; see `envgen model init --help`."),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Tokens to count for. Default: all, up to 131072."),
    ] = None,
    json: Json = None,
) -> None:
    """Tell a model's parameters, operations, cache and replay, and where sparsity pays."""
    if (folder is None) == (preset is None):
        raise ConfigError("name one model", "give a model folder, or --preset NAME")
    if folder is None:
        from envgen.model.config import preset as find

        _show(find(str(preset)), context, str(preset), json, {})
        return
    from envgen.model.checkpoint import read_config

    _show(read_config(folder), context, str(folder), json, _folder_figures(folder))


def _folder_figures(folder: Path) -> dict[str, Any]:
    """What lies in a model folder beside the configuration."""
    from collections import Counter

    from envgen.core.errors import CheckpointError
    from envgen.model.weight_files import WeightFiles
    from envgen.policies.encoding.files import ENCODING_FILE, load_encoding

    figures: dict[str, Any] = {}
    try:
        stored = WeightFiles(folder).stored
    except CheckpointError as error:
        figures["weights"] = f"none: {error}"
    else:
        kinds: Counter[str] = Counter()
        for tensor in stored.values():
            kinds[tensor.dtype] += tensor.num_bytes
        figures["weights"] = {"tensors": len(stored), "bytes": dict(kinds)}
    if (folder / ENCODING_FILE).is_file():
        encoding = load_encoding(folder)
        figures["encoding"] = encoding.config.kind
        figures["tokens"] = encoding.tokenizer.vocab_size
    return figures


def _show(
    config: DSAConfig,
    context: int | None,
    title: str,
    json: Path | None,
    figures: dict[str, Any],
    *,
    brief: bool = False,
) -> None:
    from envgen.model.cost import cost

    costs = cost(config, context or min(config.max_position_embeddings, LONGEST_DEFAULT))
    _parameters(costs, title, config)
    for line in _folder_lines(figures):
        prose(line)
    if not brief:
        _arithmetic(costs)
        _bytes(costs)
        _pays(costs)
    write_json(json, {"config": config.to_hf(), "cost": costs.model_dump(mode="json"), **figures})


def _parameters(costs: Cost, title: str, config: DSAConfig) -> None:
    found = costs.parameters
    shown = table("parameters", "all ", "active ", "share ", title=title)
    for part in found.parts:
        if part.total:
            share = f"{100 * part.total / found.total:.1f}%"
            shown.add_row(part.name, count(part.total), count(part.active), share)
    shown.add_row("together", count(found.total), count(found.active), "")
    out.print(shown)
    prose(
        f"{config.num_hidden_layers} layers, {len(config.moe_layers)} of them with "
        f"{config.n_routed_experts} experts; {config.num_attention_heads} heads; {config.index_topk} keys "
        f"kept by {config.index_n_heads} indexer heads; {config.vocab_size} tokens in the vocabulary"
    )


def _folder_lines(figures: dict[str, Any]) -> list[str]:
    lines = []
    weights = figures.get("weights")
    if isinstance(weights, dict):
        parts = [f"{count(n)}B of {dtype}" for dtype, n in weights["bytes"].items()]
        lines.append(f"weights: {weights['tensors']} tensors, {', '.join(parts)}")
    elif weights:
        lines.append(f"weights: {weights}")
    if "encoding" in figures:
        lines.append(f"encoding: {figures['encoding']}, tokenizer of {figures['tokens']} tokens")
    return lines


def _arithmetic(costs: Cost) -> None:
    heading(f"Operations of a token at a context of {costs.context}")
    shown = table("phase", "keys", "weights ", "attention ", "indexer ", "together ")
    for f in costs.flops:
        figures = (f.weights, f.attention, f.indexer, f.total)
        shown.add_row(f.phase, f.mode, *map(count, figures))
    out.print(shown)
    prose("prefill: the mean over a prompt of this length")


def _bytes(costs: Cost) -> None:
    heading("Bytes")
    shown = table("of a token, all layers", "bf16 ", "fp8 ")
    wide, small = costs.cache
    shown.add_row("cached latents", count(wide.latent), count(small.latent))
    shown.add_row("cached index keys", count(wide.index), count(small.index))
    for mode in ("dense", "sparse"):
        reads = (count(costs.decode_bytes[f"{mode} {form}"]) for form in ("bf16", "fp8"))
        shown.add_row(f"read to decode, {mode}", *reads)
    out.print(shown)
    replay = costs.replay
    routing = count(replay.routing_uint16)
    if replay.routing_uint8 is not None:
        routing += f" (as bytes {count(replay.routing_uint8)})"
    prose(
        f"replay of a token: key sets {count(replay.topk_int32)} (gaps: about {count(replay.topk_delta)}), "
        f"routing {routing}, sampling mask {replay.mask_per_token} + {replay.mask_per_kept_id} per kept id"
    )


def _pays(costs: Cost) -> None:
    found = costs.break_even
    heading("Sparse attention is cheaper from")
    shown = table("what", "tokens ")
    for what, tokens in (
        ("operations of a whole prompt", found.prefill_tokens),
        ("operations of the token that sees", found.prefill_position),
        ("bytes read to decode, bf16", found.decode_bytes_bf16),
        ("bytes read to decode, fp8", found.decode_bytes_fp8),
    ):
        shown.add_row(what, "never" if tokens is None else str(tokens))
    out.print(shown)


def count(number: int) -> str:
    """A number in three or four digits: 1.14 M, 671.9 G, 512."""
    for unit, size in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= size:
            return f"{number / size:.{1 if number >= 100 * size else 2}f} {unit}"
    return str(number)
