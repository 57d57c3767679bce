"""``envgen try-tests``: the first thing to do with a clone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envgen.cli import code_options as o
from envgen.cli.console import out, progress, prose, remark, say, table, write_json
from envgen.cli.generate import known_language
from envgen.cli.options import Json, examples

EXAMPLES = examples(
    "envgen try-tests PATH", "envgen try-tests PATH --commit v1.2 --layer python --json tried.json"
)


def add_commands(app: typer.Typer) -> None:
    """Add this module's command to ``app``."""
    app.command("try-tests", epilog=EXAMPLES)(try_tests)


def try_tests(
    clone: Annotated[
        Path, typer.Argument(metavar="CLONE", help="A clone, bare or with a checkout.")
    ],
    commit: Annotated[
        str, typer.Option(metavar="COMMIT", help="A commit, a tag or a branch.")
    ] = "HEAD",
    language: o.LanguageName = None,
    layer: o.Layer = "host",
    certificates: o.Certificates = None,
    downloads: o.Downloads = None,
    allow_missing: o.AllowMissing = False,
    backend: o.CodeBackend = "auto",
    json: Json = None,
) -> None:
    """Detect how a clone is built, build it in a sandbox, run its tests once and show the result.

    Do this before `generate code`: it takes one build and one run. The exit code is 1 if no test passes.
    """
    from envgen.environments.code_hosts import host_certificates, host_reach
    from envgen.pipelines.code.prove import BuildConfig
    from envgen.pipelines.code.try_tests import try_tests as attempt

    build = BuildConfig(
        backend=backend,
        layer=layer,
        certificates=certificates or host_certificates(),
        reach=host_reach(),
        downloads=downloads,
        allow_missing=allow_missing,
    )
    with progress("trying") as update:
        tried = attempt(
            clone,
            build,
            commit=commit,
            language=known_language(language),
            log=lambda step: update(0, 0, step.splitlines()[0][:100]),
        )
    shown = table("what", "value", title=str(clone))
    for what, value in (
        ("language", tried.language),
        ("interpreter", tried.recipe.version),
        ("runner", tried.recipe.runner),
        ("built in", f"{tried.build_s:.0f} s"),
        ("tests ran for", f"{tried.tests_s:.1f} s"),
        *((name, str(n)) for name, n in tried.counts.items()),
    ):
        if value:
            shown.add_row(what, value)
    out.print(shown)
    for test in tried.failing[:10]:
        say(f"  failing: {test}")
    if len(tried.failing) > 10:
        say(f"  and {len(tried.failing) - 10} more")
    if tried.reason:
        prose(f"{tried.status}: {tried.reason}" if not tried.counts else tried.reason)
    write_json(json, tried)
    if not tried.counts.get("pass"):
        remark("error: no test passes: nothing can be proven here as it is")
        raise typer.Exit(1)
