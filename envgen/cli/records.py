"""``envgen import``: rebuild and prove what others published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envgen.cli import code_options as o
from envgen.cli.console import out as stdout
from envgen.cli.console import progress, remark, table, write_json
from envgen.cli.options import Json, Out, examples
from envgen.cli.outcome import require

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
IMPORT_EXAMPLES = examples(
    "envgen import code swe-bench.jsonl --clones DIR --out code/",
    "envgen import code data.parquet --format swe-gym --clones DIR --only pallets/flask --out code/",
)


@app.callback()
def _group() -> None:
    """Rebuild published records, and compare what they claim with what happens."""


@app.command("code", epilog=IMPORT_EXAMPLES)
def code(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Records: .jsonl, .json, .parquet.")],
    out: Out,
    clones: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the repositories' clones are.")
    ],
    format: Annotated[
        str | None, typer.Option(metavar="NAME", help="Default: by the records' fields.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="OWNER/NAME", help="Only this repository or instance; repeatable."),
    ] = None,
    repeats: o.Repeats = 3,
    more: o.More = 10,
    only_touched: o.OnlyTouched = False,
    layer: o.Layer = "host",
    certificates: o.Certificates = None,
    workers: o.Proving = 1,
    backend: o.CodeBackend = "auto",
    downloads: o.Downloads = None,
    allow_missing: o.AllowMissing = False,
    json: Json = None,
) -> None:
    """Prove published instances again, and tell every difference from what they claim.

    The proven ones become a dataset; OUT.published.jsonl holds one comparison per record.
    """
    from envgen.core.environ import cache_folder
    from envgen.environments.code_hosts import host_certificates, host_reach
    from envgen.pipelines.code.import_records import ImportConfig, import_code
    from envgen.pipelines.code.prove import BuildConfig
    from envgen.pipelines.code.validation import ValidateConfig

    config = ImportConfig(
        format=format,
        only=tuple(only or ()),
        validation=ValidateConfig(repeats=repeats, more=more, only_touched=only_touched),
    )
    build = BuildConfig(
        backend=backend,
        layer=layer,
        certificates=certificates or host_certificates(),
        reach=host_reach(),
        downloads=downloads or cache_folder() / "downloads",
        allow_missing=allow_missing,
    )
    with progress("proving") as update:
        summary = import_code(
            file, clones, out, config, workers=workers, build=build, progress=update
        )
    shown = table("instance", "kept", "F2P claimed ", "same ", "more ", "P2P claimed ", "same ")
    for one in summary.agreements:
        figures = (
            one.claimed,
            one.reproduced,
            len(one.more),
            one.claimed_passing,
            one.kept_passing,
        )
        shown.add_row(
            one.instance_id, "yes" if one.kept else one.reason.partition(":")[0], *map(str, figures)
        )
    stdout.print(shown)
    for one in summary.agreements:
        if not one.kept:
            remark(f"{one.instance_id}: {one.reason}")
    for refused in summary.refused:
        remark(f"{refused.id}: {'; '.join(refused.reasons)}")
    write_json(json, summary)
    require(
        sum(one.kept for one in summary.agreements),
        len(summary.agreements) + len(summary.refused),
        "records reproduced and kept",
        f"{out}.published.jsonl and {out}.outcomes.jsonl tell why of each",
    )
