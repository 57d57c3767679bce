"""The options of commands that prove code instances."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Clone = Annotated[
    Path | None, typer.Option(metavar="PATH", help="A clone to mine, bare or with a checkout.")
]
RepoName = Annotated[
    str | None,
    typer.Option(
        metavar="OWNER/NAME",
        help="What the clone is a clone of; without --clone it is fetched from GitHub.",
    ),
]
Repos = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Repositories to fetch from GitHub, one a line."),
]
Repositories = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Where fetched repositories are kept. Default: envgen's cache."
    ),
]
TokenEnv = Annotated[
    str, typer.Option(metavar="NAME", help="Environment variable of the GitHub token.")
]
Api = Annotated[
    str | None, typer.Option(metavar="URL", help="For GitHub Enterprise: https://HOST/api/v3.")
]
Policy = Annotated[
    str | None,
    typer.Option(
        metavar="SPEC",
        help="A model that judges instances, and writes statements (openai:MODEL@URL).",
    ),
]
Votes = Annotated[int, typer.Option(min=1, metavar="N", help="Votes of the policy on an instance.")]
MaxCost = Annotated[
    float | None, typer.Option(min=0.0, metavar="USD", help="What the policy may cost.")
]
Concurrency = Annotated[
    int, typer.Option(min=1, metavar="N", help="Instances judged at the same time.")
]
Issues = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="Issues and pull requests, JSON lines; repeatable."),
]
Instances = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="Instances, JSON lines, instead of mining; repeatable."),
]
Clones = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where the clones of the instances are.")
]
LanguageName = Annotated[
    str | None, typer.Option(metavar="NAME", help="Default: what most files are written in.")
]
Since = Annotated[
    str | None, typer.Option(metavar="DATE", help="Mine what landed on this day or later.")
]
Until = Annotated[
    str | None, typer.Option(metavar="DATE", help="Mine what landed before this day.")
]
Limit = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Most instances to try of a clone.")
]
Most = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Stop after so many proven tasks.")
]
Repeats = Annotated[
    int, typer.Option(min=1, metavar="N", help="Runs of each state of an instance.")
]
More = Annotated[int, typer.Option(min=0, metavar="N", help="Further runs of what would be kept.")]
OnlyTouched = Annotated[
    bool,
    typer.Option("--only-touched", help="Run only the test files that the test patch touches."),
]
Layer = Annotated[
    str, typer.Option(metavar="NAME", help="The language layer (`envgen images list`).")
]
Certificates = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="PEM bundle that installs trust. Default: SSL_CERT_FILE."),
]
Name = Annotated[str, typer.Option(metavar="ID", help="The dataset's name.")]
Proving = Annotated[
    int, typer.Option(min=1, metavar="N", help="Instances proven at the same time.")
]
CodeBackend = Annotated[
    Literal["auto", "bubblewrap", "docker"],
    typer.Option(metavar="NAME", help="Where repositories are built and tested."),
]
Downloads = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Where installs keep what they fetch, for each repository. Default: envgen's cache.",
    ),
]
AllowMissing = Annotated[
    bool,
    typer.Option("--allow-missing", help="Leave out files that a partial clone lacks."),
]
