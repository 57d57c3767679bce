"""What an install reaches: the package indexes of the internet, and nothing that listens on this machine."""

from __future__ import annotations

import socket
import ssl
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
import toy_repository

from envgen.core.code_types import Recipe
from envgen.environments.code_hosts import host_certificates
from envgen.sandboxes.workspace import base_tree, build_workspace

BACKENDS = [
    pytest.param("bubblewrap", marks=pytest.mark.bwrap),
    pytest.param("docker", marks=pytest.mark.docker),
]
INDEX = "https://pypi.org/simple/six/"
HOSTILE = """python3 - > /env/told <<'E'
import socket
for family, address in (
    (socket.AF_INET, ("127.0.0.1", PORT)), (socket.AF_UNIX, chr(0) + "envgen-PORT")
):
    with socket.socket(family) as s:
        s.settimeout(2)
        try: s.connect(address); print("reached", address)
        except OSError as error: print(error.strerror)
E"""


@cache
def no_index() -> str:
    """Why this machine does not reach the index; empty: it does."""
    context = ssl.create_default_context(cafile=host_certificates())
    try:
        with urllib.request.urlopen(INDEX, timeout=30, context=context):
            return ""
    except OSError as error:
        return f"{INDEX}: {error}"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone")
    return base_tree(folder / "clone", toy_repository.make(folder / "clone"), folder / "tree.tar")


@contextmanager
def listening() -> Iterator[int]:
    """A listener on 127.0.0.1 and an abstract socket, which is named after its port."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        port = server.getsockname()[1]
        abstract.bind(f"\0envgen-{port}")
        abstract.listen()
        yield port


def install(tree: Path, folder: Path, backend: str, *commands: str) -> Path:
    """Build a recipe of these commands; its ``/env``."""
    recipe = Recipe(
        language="go",
        runner="unittest",
        install=commands,
        memory_bytes=1 << 30,
        disk_bytes=64 << 20,
    )
    built = build_workspace(
        recipe, tree, backend=backend, cache_root=folder, certificates=host_certificates()
    )
    return built.folder / "env"


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_install_reaches_no_listener_of_this_machine(
    tree: Path, tmp_path: Path, backend: str
) -> None:
    with listening() as port:
        env = install(tree, tmp_path, backend, HOSTILE.replace("PORT", str(port)))
    assert (env / "told").read_text() == "Connection refused\n" * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_install_fetches_a_package_from_the_index(
    tree: Path, tmp_path: Path, backend: str
) -> None:
    if why := no_index():
        pytest.skip(f"no network: {why}")
    fetch = "uv pip install -q --no-config --target /env/six --python /usr/bin/python3 six==1.16.0"
    assert (install(tree, tmp_path, backend, fetch) / "six" / "six.py").is_file()
