"""``envgen serve``: put a model behind a port."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from envgen.cli.console import remark, say, write_json
from envgen.cli.options import Json, examples

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
POLICY_EXAMPLES = examples(
    "envgen serve policy m/",
    "envgen serve policy m/ --port 0 --json server.json",
    "envgen serve policy m/ --model-name tiny --max-batch 64 --max-kept 256",
    "envgen serve policy m/ --host 0.0.0.0 --api-key-env SERVE_KEY",
)


@app.callback()
def _group() -> None:
    """Serve models."""


@app.command("policy", epilog=POLICY_EXAMPLES)
def policy(
    model: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A model folder.", show_default=False)
    ],
    host: Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, metavar="N", help="Port; 0: any free one.")
    ] = 8000,
    api_key_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Environment variable with the key clients must send."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Without a key: one more name that clients call it by. Repeatable."
        ),
    ] = None,
    model_name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What clients call the model. Default: the folder's."),
    ] = None,
    max_batch: Annotated[
        int, typer.Option(min=1, metavar="N", help="Replies that are written together.")
    ] = 32,
    max_waiting: Annotated[
        int, typer.Option(min=0, metavar="N", help="Replies that may wait; then it answers 429.")
    ] = 256,
    max_kept: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Most vocabulary entries a token is drawn from."),
    ] = None,
    max_new_tokens: Annotated[
        int, typer.Option(min=1, metavar="N", help="Of a reply whose request names no limit.")
    ] = 1_024,
    cache_tokens: Annotated[
        int, typer.Option(min=1, metavar="N", help="Tokens the cache holds.")
    ] = 65_536,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Of PyTorch. Default: one per core, or OMP_NUM_THREADS."
        ),
    ] = None,
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        typer.Option(metavar="NAME", help="auto (as stored), float32, bfloat16 or float16."),
    ] = "auto",
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda, cuda:1, ...")] = "cpu",
    thinking: Annotated[
        bool | None,
        typer.Option("--thinking/--no-thinking", help="Instead of what encoding.json says."),
    ] = None,
    json: Json = None,
) -> None:
    """Answer OpenAI's API with a model folder, until Ctrl-C.

    Prints the base URL once it listens: give it to any OpenAI client, or roll the model out with
    --policy openai:NAME@URL, or vllm:NAME@URL for token ids. Replies that are asked for at the same
    time are written as one batch.
    """
    from envgen.policies.server import PolicyServer, ServeConfig

    config = ServeConfig(
        model=str(model),
        host=host,
        port=port,
        api_key_env=api_key_env,
        allow_hosts=tuple(allow_host or ()),
        model_name=model_name,
        max_batch=max_batch,
        max_waiting=max_waiting,
        max_kept=max_kept,
        max_new_tokens=max_new_tokens,
        cache_tokens=cache_tokens,
        threads=threads,
        dtype=dtype,
        device=device,
        thinking=thinking,
    )
    remark(f"loading {str(model)!r}")
    server = PolicyServer(config)
    if server.warning:
        remark(f"warning: {server.warning}")
    write_json(json, server.card())
    say(server.url)
    remark(
        f"serving {server.service.name!r}, window {server.service.local.window} tokens; Ctrl-C stops it"
    )
    server.run()
    remark("stopped")
