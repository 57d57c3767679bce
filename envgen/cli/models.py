"""Commands about models: model init, model info, serve policy."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import Field

from envgen.cli.command import Command, Makes
from envgen.cli.console import heading, prose, remark, require, say, show_figures, show_rows
from envgen.core.errors import CheckpointError, ConfigError
from envgen.core.limits import Line
from envgen.environments.hosts import open_dataset
from envgen.model.config import DSAConfig, preset
from envgen.model.cost import Cost, cost
from envgen.policies.encoding.files import ENCODING_FILE, load_encoding
from envgen.policies.local_model import ServeConfig
from envgen.policies.new_model import NewModelConfig, new_model

LONGEST_DEFAULT = 131_072


class Init(NewModelConfig, Makes):
    """Make a model folder: configuration, random weights, tokenizer, encoding."""

    names = {"--preset NAME": "preset", "--encoding": "encoding.kind"}
    examples = (
        "envgen model init --preset tiny --tokenizer ds/ --out m/",
        "envgen model init --preset small --tokenizer m/ -o n/ -c model.index_topk=128",
        "envgen model init --preset tiny --tokenizer ds/ --encoding dsml -o m3/",
    )

    tokenizer: Path
    """A dataset to train one on, or a folder with a tokenizer.json to copy."""
    unproven: bool = False

    def execute(self) -> None:
        """Make it, and tell its size."""
        source = self.tokenizer
        if not (source / "tokenizer.json").is_file():
            source = open_dataset(source, unproven=self.unproven).path
        found = new_model(self.part(NewModelConfig), source, self.out, unproven=self.unproven)
        costs = cost(found, min(found.max_position_embeddings, LONGEST_DEFAULT))
        figures = _folder_figures(self.out)
        _show(found, costs, str(self.out), figures)
        self.tell(_told(found, costs, figures))
        why = "the texts have no more"
        require(found.vocab_size, self.vocab_size, "tokens in the vocabulary", why)


class Info(Command):
    """Tell a model's parameters, operations, cache and replay, and where sparsity pays."""

    places = {"[MODEL]": "folder"}
    examples = ("envgen model info m/", "envgen model info --preset deepseek-v3.2 --context 131072")

    folder: Path | None = None
    """A model folder."""
    preset: Line | None = None
    """A preset instead: tiny, small, medium, large or deepseek-v3.2."""
    context: int | None = Field(default=None, ge=1)
    """Tokens to count for. None: all, up to 131072."""

    def execute(self) -> None:
        """Count, and tell."""
        if (self.folder is None) == (self.preset is None):
            raise ConfigError("name one model", "give a model folder, or --preset NAME")
        figures: dict[str, Any] = {}
        if self.folder is None:
            config = preset(str(self.preset))
        else:
            from envgen.model.checkpoint import read_config

            config, figures = read_config(self.folder), _folder_figures(self.folder)
        context = self.context or min(config.max_position_embeddings, LONGEST_DEFAULT)
        costs = cost(config, context)
        _show(config, costs, str(self.folder or self.preset), figures)
        _arithmetic(costs)
        _bytes(costs)
        _pays(costs)
        self.tell(_told(config, costs, figures))


class Serve(ServeConfig, Command):
    """Answer OpenAI's API with a model folder, until Ctrl-C.

    Prints the base URL once it listens: give it to any OpenAI client, or roll the model out with
    --policy openai:NAME@URL, or vllm:NAME@URL for token ids. Replies that are asked for at the same
    time are written as one batch.
    """

    places = {"FOLDER": "model"}
    names = {"--allow-host NAME": "allow_hosts"}
    examples = (
        "envgen serve policy m/",
        "envgen serve policy m/ --port 0 --json server.json",
        "envgen serve policy m/ --model-name tiny --max-batch 64 --max-kept 256",
        "envgen serve policy m/ --host 0.0.0.0 --api-key-env SERVE_KEY",
    )

    def execute(self) -> None:
        """Load the model and answer."""
        from envgen.policies.server import PolicyServer

        remark(f"loading {str(self.model)!r}")
        server = PolicyServer(self.part(ServeConfig))
        if server.warning:
            remark(f"warning: {server.warning}")
        self.tell(server.card())
        say(server.url)
        served = f"serving {server.service.name!r}, window {server.service.local.window} tokens"
        remark(f"{served}; Ctrl-C stops it")
        server.run()
        remark("stopped")


def _folder_figures(folder: Path) -> dict[str, Any]:
    """What lies in a model folder beside the configuration."""
    from envgen.model.weight_files import WeightFiles

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


def _told(config: DSAConfig, costs: Cost, figures: dict[str, Any]) -> dict[str, Any]:
    return {"config": config.to_hf(), "cost": costs.model_dump(mode="json"), **figures}


def _show(config: DSAConfig, costs: Cost, title: str, figures: dict[str, Any]) -> None:
    """Parameters, shape, and what lies in the folder."""
    found = costs.parameters
    rows = [
        (part.name, count(part.total), count(part.active), f"{part.total / found.total:.1%}")
        for part in found.parts
        if part.total
    ]
    rows.append(("together", count(found.total), count(found.active), ""))
    show_rows(("parameters", "all ", "active ", "share "), rows, title=title)
    prose(
        f"{config.num_hidden_layers} layers, {len(config.moe_layers)} of them with "
        f"{config.n_routed_experts} experts; {config.num_attention_heads} heads; {config.index_topk} keys "
        f"kept by {config.index_n_heads} indexer heads; {config.vocab_size} tokens in the vocabulary"
    )
    for line in _folder_lines(figures):
        prose(line)


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
    rows = (
        (f.phase, f.mode, *map(count, (f.weights, f.attention, f.indexer, f.total)))
        for f in costs.flops
    )
    show_rows(("phase", "keys", "weights ", "attention ", "indexer ", "together "), rows)
    prose("prefill: the mean over a prompt of this length")


def _bytes(costs: Cost) -> None:
    heading("Bytes")
    wide, small = costs.cache
    rows = [
        ("cached latents", count(wide.latent), count(small.latent)),
        ("cached index keys", count(wide.index), count(small.index)),
    ]
    for mode in ("dense", "sparse"):
        read = costs.decode_bytes
        both = count(read[f"{mode} bf16"]), count(read[f"{mode} fp8"])
        rows.append((f"read to decode, {mode}", *both))
    show_rows(("of a token, all layers", "bf16 ", "fp8 "), rows)
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
    figures = {
        "operations of a whole prompt": found.prefill_tokens,
        "operations of the token that sees": found.prefill_position,
        "bytes read to decode, bf16": found.decode_bytes_bf16,
        "bytes read to decode, fp8": found.decode_bytes_fp8,
    }
    shown = {what: "never" if n is None else n for what, n in figures.items()}
    show_figures("", shown, "tokens ")


def count(number: int) -> str:
    """A number in three or four digits: 1.14 M, 671.9 G, 512."""
    for unit, size in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= size:
            return f"{number / size:.{1 if number >= 100 * size else 2}f} {unit}"
    return str(number)
