"""Commands about models: model init, model info, serve policy."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import Field

from envgen.cli.command import Command, Makes
from envgen.cli.console import OnProgress, remark, require, say
from envgen.cli.records import show_record, write_json
from envgen.core.errors import CheckpointError, ConfigError
from envgen.core.limits import Line
from envgen.model.config import DSAConfig, preset
from envgen.model.cost import Cost, cost
from envgen.policies.encoding.files import ENCODING_FILE, load_encoding
from envgen.policies.local_model import ServeConfig
from envgen.policies.new_model import NewModelConfig

LONGEST_DEFAULT = 131_072
SHAPE = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "n_routed_experts", "index_n_heads",
    "index_topk", "vocab_size",
)  # fmt: skip
"""What of a model's config is shown beside its costs."""


class Init(NewModelConfig, Makes):
    """Make a model folder: configuration, random weights, tokenizer, encoding."""

    names = {"--preset NAME": "preset", "--encoding": "encoding.kind"}
    examples = (
        "envgen model init --preset tiny --tokenizer ds/ --out m/",
        "envgen model init --preset small --tokenizer m/ -o n/ -c model.index_topk=128",
        "envgen model init --preset tiny --tokenizer ds/ --encoding dsml -o m3/",
    )
    verb = "envgen.policies.new_model:new_model"

    tokenizer: Path
    """A dataset to train one on, or a folder with a tokenizer.json to copy."""
    unproven: bool = False

    def inputs(self, update: OnProgress) -> dict[str, Any]:
        """Where the tokenizer comes from."""
        from envgen.environments.hosts import open_dataset

        if (self.tokenizer / "tokenizer.json").is_file():
            return {"source": self.tokenizer}
        return {"source": open_dataset(self.tokenizer, unproven=self.unproven).path}

    def call(self, more: Any) -> Any:
        """Make it, and count what it costs."""
        return describe(super().call(more), None, self.out)

    def tell(self, summary: Any) -> None:
        """Show what was made and what it costs; a small dataset may not have enough tokens."""
        show_model(summary, self.out)
        size = summary["config"]["vocab_size"]
        require(size, self.vocab_size, "tokens in the vocabulary", "the texts have no more")


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
        if self.folder is None:
            config = preset(str(self.preset))
        else:
            from envgen.model.checkpoint import read_config

            config = read_config(self.folder)
        summary = describe(config, self.context, self.folder)
        show_model(summary, self.folder or self.preset)
        write_json(self.figures, summary)


def describe(config: DSAConfig, context: int | None, folder: Path | None) -> dict[str, Any]:
    """A model's config, its costs at a context, and what lies in its folder, as ``--json`` writes them."""
    context = context or min(config.max_position_embeddings, LONGEST_DEFAULT)
    found = {"config": config.to_hf(), "cost": cost(config, context).model_dump(mode="json")}
    return found | (_in_folder(folder) if folder else {})


def show_model(summary: dict[str, Any], title: object) -> None:
    """Print what was told."""
    shape = {name: summary["config"][name] for name in SHAPE}
    there = {name: one for name, one in summary.items() if name not in ("config", "cost")}
    show_record({**shape, **there}, title)
    show_record(Cost(**summary["cost"]))


def _in_folder(folder: Path) -> dict[str, Any]:
    """What lies in a model folder beside the configuration."""
    from envgen.model.weight_files import WeightFiles

    figures: dict[str, Any] = {}
    try:
        kinds: Counter[str] = Counter()
        stored = WeightFiles(folder).stored
        for tensor in stored.values():
            kinds[tensor.dtype] += tensor.num_bytes
        figures["weights"] = {"tensors": len(stored), "bytes": dict(kinds)}
    except CheckpointError as error:
        figures["weights"] = f"none: {error}"
    if (folder / ENCODING_FILE).is_file():
        encoding = load_encoding(folder)
        figures["encoding"] = encoding.config.kind
        figures["tokens"] = encoding.tokenizer.vocab_size
    return figures


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
        server = PolicyServer(self.config())
        if server.warning:
            remark(f"warning: {server.warning}")
        write_json(self.figures, server.card())
        say(server.url)
        served = f"serving {server.service.name!r}, window {server.service.local.window} tokens"
        remark(f"{served}; Ctrl-C stops it")
        server.run()
        remark("stopped")
