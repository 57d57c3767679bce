"""``envgen images``: what code environments stand on. Make language layers, list, clean up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envgen.cli.console import out, say, table, write_json
from envgen.cli.options import Json, examples
from envgen.core.errors import ConfigError

app = typer.Typer(
    help="Language layers and built workspaces of code environments.", no_args_is_help=True
)


@app.command(
    epilog=examples(
        "envgen images bootstrap python",
        "envgen images bootstrap cpp --for bubblewrap --package libboost-dev",
        "envgen images bootstrap java --base debian:bookworm",
    )
)
def bootstrap(
    name: Annotated[
        str, typer.Argument(metavar="LANGUAGE", help="python, node, cpp, go, java or php.")
    ],
    backends: Annotated[
        str, typer.Option("--for", metavar="LIST", help="bubblewrap, docker or bubblewrap,docker.")
    ] = "bubblewrap,docker",
    base: Annotated[
        str | None,
        typer.Option(
            metavar="IMAGE", help="A Docker image with apt to build on; else debootstrap."
        ),
    ] = None,
    suite: Annotated[
        str, typer.Option(metavar="NAME", help="The Debian release for debootstrap.")
    ] = "bookworm",
    mirror: Annotated[
        str | None, typer.Option(metavar="URL", help="Where debootstrap gets packages.")
    ] = None,
    sources: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A sources.list that apt uses meanwhile.")
    ] = None,
    package: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="One more Debian package; repeatable.")
    ] = None,
    copy: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A folder to copy to the same place.")
    ] = None,
    json: Json = None,
) -> None:
    """Make a language layer: a root file system and a Docker image of it."""
    from envgen.sandboxes.workspace.bootstrap import LayerConfig
    from envgen.sandboxes.workspace.bootstrap import bootstrap as make

    chosen = tuple(word.strip() for word in backends.split(",") if word.strip())
    if not chosen or not set(chosen) <= {"bubblewrap", "docker"}:
        raise ConfigError(f"--for {backends!r} names no backend", "bubblewrap, docker or both")
    for path in (*((sources,) if sources else ()), *(copy or ())):
        if not path.exists():  # else one would learn it after minutes of building
            raise ConfigError(f"there is no {str(path)!r}", "check --sources and --copy")
    config = LayerConfig(
        name=name,
        suite=suite,
        mirror=mirror,
        sources=sources,
        base=base,
        more_packages=tuple(package or ()),
        copies=tuple(copy or ()),
        backends=chosen,
    )
    layer = make(config, log=say)
    say(f"layer {layer.name!r} is ready: {len(layer.packages)} packages")
    write_json(json, layer)


@app.command("list", epilog=examples("envgen images list", "envgen images list --json images.json"))
def list_images(json: Json = None) -> None:
    """List language layers, built workspaces and images, with their sizes."""
    from envgen.sandboxes.workspace.inventory import inventory

    found = inventory()
    write_json(json, [item.model_dump(mode="json") for item in found])
    if not found:
        say("nothing is built yet; envgen images bootstrap makes a layer")
        return
    shown = table("kind", "name", "MiB", "last used", "what")
    for item in found:
        size = f"{item.bytes / (1 << 20):.0f}"
        shown.add_row(item.kind, item.name, size, item.used[:10], item.about)
    out.print(shown)


@app.command(
    epilog=examples("envgen images clean", "envgen images clean --older-than 30 --layers --dry-run")
)
def clean(
    older_than: Annotated[
        float | None,
        typer.Option(min=0, metavar="DAYS", help="Also workspaces not used for so many days."),
    ] = None,
    layers: Annotated[bool, typer.Option("--layers", help="Also every language layer.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    json: Json = None,
) -> None:
    """Remove what killed builds have left, and what you say is old."""
    from envgen.sandboxes.workspace.inventory import clean as remove

    gone = remove(older_than_days=older_than, layers=layers, dry_run=dry_run)
    for item in gone:
        say(f"{'would remove' if dry_run else 'removed'} {item.kind} {item.name}")
    say(f"{len(gone)} things, {sum(item.bytes for item in gone) / (1 << 20):.0f} MiB")
    write_json(json, [item.model_dump(mode="json") for item in gone])
