"""Keep a bare copy of a remote repository, pull requests included, up to date in a folder."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from pathlib import Path

from envgen.core.errors import ConfigError, PipelineError

_PULLS = "+refs/pull/*/head:refs/pull/*/head"
_HEADS = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
_PROTOCOLS = "https:http:ssh:git:file"


def mirror(url: str, folder: Path, *, token: str | None = None, timeout_s: float = 3_600.0) -> Path:
    """Clone ``url`` into the bare repository ``folder``, or bring it up to date.

    Args:
        url: https, ssh, git or file; others can run programs.
        folder: made in one step: it is there whole or not at all.
        token: for https; it goes into no file and no command line.
        timeout_s: for each of git's commands.

    Raises:
        ConfigError: if the address is of another kind, or starts with a dash.
        PipelineError: with git's words, if it can't be had.
    """
    if url.startswith("-") or not url.startswith(tuple(f"{p}://" for p in _PROTOCOLS.split(":"))):
        raise ConfigError(
            f"{url!r} is not the address of a repository", "write it like https://HOST/owner/name"
        )
    environment = _environment(url, token)
    if (folder / "HEAD").is_file():
        _fetch(folder, environment, timeout_s)
        return folder
    part = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    shutil.rmtree(part, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        _git(["clone", "-q", "--bare", "--", url, str(part)], environment, timeout_s)
        _fetch(part, environment, timeout_s)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _fetch(folder: Path, environment: dict[str, str], timeout_s: float) -> None:
    fetch = [f"--git-dir={folder}", "fetch", "-q", "--force", "--prune", "--no-auto-gc", "origin"]
    _git([*fetch, *_HEADS, _PULLS], environment, timeout_s)


def _git(words: list[str], environment: dict[str, str], timeout_s: float) -> None:
    try:
        done = subprocess.run(
            ["git", *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        raise PipelineError(
            f"git {words[0]} took over {timeout_s:g} s", "raise timeout_s"
        ) from None
    if done.returncode:
        message = done.stderr.decode("utf-8", "replace").strip()[-400:]
        raise PipelineError(
            f"the repository can't be had: {message}", "check owner/name, the token and the disk"
        )


def _environment(url: str, token: str | None) -> dict[str, str]:
    """The user's environment without what would ask questions; the token as a header for this host."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    settings = {"core.hooksPath": "/dev/null", "gc.auto": "0"}
    if token and url.startswith("https://"):
        host = "/".join(url.split("/")[:3])
        secret = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        settings[f"http.{host}/.extraHeader"] = f"Authorization: Basic {secret}"
    for i, (name, value) in enumerate(settings.items()):
        kept |= {f"GIT_CONFIG_KEY_{i}": name, f"GIT_CONFIG_VALUE_{i}": value}
    return {
        **kept,
        "GIT_CONFIG_COUNT": str(len(settings)),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": _PROTOCOLS,
        "LC_ALL": "C.UTF-8",
    }
