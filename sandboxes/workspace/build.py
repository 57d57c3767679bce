"""Build a workspace: install with the network on, build with it off, freeze.

The install runs as a user without rights in a sandbox that may write ``/env`` and sees no more of this
machine's files than a test does. It reaches the internet, but nothing that listens on this machine's
127.0.0.1 or on its abstract sockets; in bubblewrap it has a proxy and nothing else (``gateway.py``), so
private networks are shut, too. In docker it has the engine's bridge, which leads to the local network and
to what listens on the bridge's address. How to reach the indexes is the caller's word: certificates
and index settings are environment, and never part of what is built.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from pydantic import ValidationError

from envgen.core.code_types import DEPENDENCIES, REPOSITORY, Recipe
from envgen.core.errors import MissingToolError, WorkspaceError, install_hint
from envgen.core.limits import fault
from envgen.sandboxes.base import Mount
from envgen.sandboxes.untrusted_files import read_regular
from envgen.sandboxes.workspace import images, layers, parts, pool, store
from envgen.sandboxes.workspace.attend import attend
from envgen.sandboxes.workspace.open import Workspace, load
from envgen.sandboxes.workspace.packages import BY_LANGUAGE, programs
from envgen.sandboxes.workspace.parts import OWN, Box, WorkspaceLimits

OUT = "/out"
DOWNLOADS = "/downloads"
TOOLS = "/run/envgen-tools"
"""Where an install finds ``uv``."""
CERTIFICATES = "/run/certificates.pem"
CONSTRAINTS = f"{DEPENDENCIES}/constraints.txt"
"""What an install must resolve to: the recipe's pins, or an empty file."""
LOG = "build.log"
"""What every command said."""
RESERVE_BYTES = 1 << 30
"""What a build leaves free on the disk."""
PINS = f"{DEPENDENCIES}/pins.txt"
"""Where an install says what it resolved to."""
_CERTIFICATE_VARIABLES = (
    "SSL_CERT_FILE",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "npm_config_cafile",
    "COMPOSER_CAFILE",
)
_KEEP = f"/bin/rm -rf {OUT}/tree.tar && /bin/tar -cf {OUT}/tree.tar -C {REPOSITORY}/.. repo"
_TREE_NAME = re.compile(r"^[0-9a-f]{40,64}$", re.M)
_MAX_PINS = 4 << 20
# what the build has made is no part of anybody's diff
_BASELINE = f"""set -e
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
GIT_INDEX_FILE=$(mktemp); export GIT_INDEX_FILE
git read-tree HEAD
mkdir -p .git/info
git ls-files --others --exclude-standard --directory --no-empty-directory -z | tr '\\0' '\\n' |
  sed -e 's/[][*?\\\\]/\\\\&/g' -e 's:^:/:' >> .git/info/exclude
git add --all . >/dev/null
git write-tree
rm -f "$GIT_INDEX_FILE"
{_KEEP}
"""


def build_workspace(
    recipe: Recipe,
    tree: Path,
    *,
    backend: str = "auto",
    certificates: Path | None = None,
    variables: Mapping[str, str] | None = None,
    mounts: Sequence[Mount] = (),
    reach: Sequence[str] = (),
    downloads: Path | None = None,
    install_s: float = 1800.0,
    build_s: float = 1800.0,
    cache_root: Path | None = None,
    log: Callable[[str], None] | None = None,
    claims: list[store.Claim] | None = None,
) -> Workspace:
    """The workspace of a recipe and a base tree: built now, or as it was built before.

    Args:
        recipe: how to build it.
        tree: a tar of ``base_tree``.
        backend: ``bubblewrap``, ``docker`` or ``auto``.
        certificates: a PEM bundle that installs must trust, e.g. a proxy's.
        variables: settings for installs only, such as package indexes; part of no hash.
        mounts: folders of this machine that installs may read, such as a local package index.
        reach: hosts (``name`` or ``name:port``) of private networks, or of this machine, that installs may
            reach in bubblewrap, such as a private index.
        downloads: a folder in which installs keep what they have fetched. Whatever an install runs can
            change it, so let no two repositories share one.
        install_s: seconds one install command may take.
        build_s: seconds one build command may take.
        cache_root: instead of the user's cache folder.
        log: is told each step as it starts.
        claims: is given one on the workspace: nobody discards it before that is closed.

    Raises:
        WorkspaceError: a command failed, hung or filled the disk; with the command and its last lines.
    """
    layer = layers.layer(recipe.layer, cache_root)
    _check_packages(recipe, layer)
    chosen = parts.choose_backend(backend, layer)
    place = store.code_folder(cache_root) / store.key(layer, recipe, tree)
    wait_s = (install_s + build_s) * 2
    with store.locked(place, wait_s):
        if (place / store.RECORD).exists():
            if claims is not None:
                claims.append(store.Claim(place))
            return _reopened(place, layer, chosen, images.cache_id(cache_root))
        settings = dict(variables or {})
        with store.building(place, replace=True) as folder:
            builder = Builder(recipe, layer, chosen, folder, reach, log or (lambda _: None))
            # one install at a time owns a folder of downloads, and writes it
            with store.locked(downloads, wait_s) if downloads else nullcontext():
                access = builder.access(certificates, mounts, downloads)
                builder.install(tree, access, settings, certificates, install_s)
            baseline = builder.build(build_s)
            pool.share(folder / "env", pool.place(cache_root))
            found = Workspace(
                key=place.name,
                folder=place,
                recipe=_pinned(recipe, builder.pins),
                layer=layer,
                backend=chosen,
                baseline=baseline,
                shown=builder.shown,
                image=_image(layer, chosen, folder, place.name, images.cache_id(cache_root)),
                built_s=builder.seconds(),
            )
            (folder / store.RECORD).write_text(found.model_dump_json(indent=1))
        if claims is not None:
            claims.append(store.Claim(place))
    return found


def _pinned(recipe: Recipe, pins: Sequence[str]) -> Recipe:
    """The recipe with what its install resolved to, checked as its readers will check it."""
    try:
        return Recipe.model_validate({**recipe.model_dump(), "pins": tuple(pins)})
    except ValidationError as error:
        raise WorkspaceError(
            f"what the install resolved to can't be kept: {fault(error)}"
        ) from None


def _check_packages(recipe: Recipe, layer: layers.Layer) -> None:
    """Say now what the layer lacks; the host's own packages are its owner's affair."""
    known = {package.partition("=")[0] for package in layer.packages}
    lacking = [name for name in recipe.packages if name not in known]
    if lacking and not layer.is_host:
        words = " ".join(f"--package {name}" for name in lacking)
        raise MissingToolError(
            f"the layer {layer.name!r} is missing {', '.join(lacking)}",
            f"make it anew: envgen images bootstrap {layer.name} {words}",
        )


def _reopened(place: Path, layer: layers.Layer, backend: str, owner: str) -> Workspace:
    """A workspace that was built before, perhaps for another backend."""
    found = load(place)
    os.utime(place / store.RECORD)  # it is in use: see store.clean
    image = found.image
    if backend == "docker" and not layer.is_host and not (image and images.exists(image)):
        image = _image(layer, backend, place, found.key, owner)
    changed = found.model_copy(update={"backend": backend, "layer": layer, "image": image})
    (place / store.RECORD).write_text(changed.model_dump_json(indent=1))
    return changed


def _image(layer: layers.Layer, backend: str, folder: Path, key: str, owner: str) -> str | None:
    """The image of a workspace whose layer is one."""
    if backend != "docker" or layer.is_host or layer.image is None:
        return None
    return images.build_instance(folder, layer.image, key, owner)


class Builder:
    """The steps of one build, in a folder that becomes the workspace."""

    def __init__(
        self,
        recipe: Recipe,
        layer: layers.Layer,
        backend: str,
        folder: Path,
        reach: Sequence[str],
        log: Callable[[str], None],
    ) -> None:
        self.recipe, self.layer, self.backend = recipe, layer, backend
        self.folder, self.reach, self.log = folder, tuple(reach), log
        self.pins = recipe.pins
        self.shown: tuple[str, ...] = ()
        self._user = parts.default_user(backend)
        self._began = time.monotonic()
        self._python = ""
        if recipe.language == "python":
            self._python = layers.interpreter(recipe.version, layer)
            self.shown = _prefix(self._python, layer)

    def seconds(self) -> float:
        """Seconds since the build began."""
        return time.monotonic() - self._began

    def _limits(self) -> WorkspaceLimits:
        return WorkspaceLimits(wall_s=7200.0, pids=2048)

    def access(
        self, certificates: Path | None, mounts: Sequence[Mount], downloads: Path | None
    ) -> tuple[Mount, ...]:
        """List the parts of this machine that an install sees beside its own folders."""
        own = [Mount(source=certificates, target=CERTIFICATES)] if certificates else []
        if downloads is not None:
            downloads.mkdir(parents=True, exist_ok=True)
            self._give(downloads)
            own.append(Mount(source=downloads, target=DOWNLOADS, writable=True))
        return (*own, *mounts)

    def install(
        self,
        tree: Path,
        access: Sequence[Mount],
        settings: Mapping[str, str],
        certificates: Path | None,
        timeout_s: float,
    ) -> None:
        """Fill ``env`` and leave the tree as installs have made it in ``out/tree.tar``."""
        with self.installing(tree, access, settings, certificates) as box:
            for command in self.recipe.install:
                self._run(box, "install", command, timeout_s)
            self._run(box, "keep", _KEEP, 600.0, OWN)
        self._settle(self.folder / "env")

    @contextmanager
    def installing(
        self,
        tree: Path,
        access: Sequence[Mount],
        settings: Mapping[str, str],
        certificates: Path | None,
    ) -> Iterator[Box]:
        """The sandbox of an install: the tree laid out, ``/env`` to be filled, the internet."""
        env, out = self._writable("env"), self._writable("out")
        pins = "".join(f"{pin}\n" for pin in self.recipe.pins)
        (env / Path(CONSTRAINTS).name).write_text(pins)
        (env / Path(CONSTRAINTS).name).chmod(0o644)
        kept = any(mount.target == DOWNLOADS for mount in access)
        mounts = [
            Mount(source=env, target=DEPENDENCIES, writable=True),
            Mount(source=out, target=OUT, writable=True),
            parts.tree_mount(tree.absolute()),
            *(Mount(source=Path(path), target=path) for path in self.shown),
            *_tools(self.recipe),
            *access,
        ]
        with self._box(mounts, network=True) as box:
            box.unpack()
            self._check_programs(box)
            box.variables |= {"PYTHON": self._python, **_caches(kept), **settings}
            if self.recipe.cutoff:
                box.variables.setdefault("UV_EXCLUDE_NEWER", self.recipe.cutoff)
            if certificates:
                box.variables |= dict.fromkeys(_CERTIFICATE_VARIABLES, CERTIFICATES)
            box.variables["PATH"] = f"{box.variables['PATH']}:{TOOLS}"
            yield box

    def _check_programs(self, box: Box) -> None:
        """Say now which program is missing: tests without it end as if the project were broken."""
        wanted = programs(self.recipe)
        line = "; ".join(f"command -v {name} >/dev/null || echo {name}" for name in wanted)
        if wanted and (lacking := self._run(box, "look for programs", line, 60.0).split()):
            named = BY_LANGUAGE[self.recipe.language]
            raise MissingToolError(
                f"{', '.join(lacking)}: not found in the layer {self.layer.name!r}, and "
                f"{self.recipe.language} projects need it",
                f"install it, or run `envgen images bootstrap {named}` and add --layer {named}",
            )

    def build(self, timeout_s: float) -> str:
        """Run the build commands without a network and freeze the tree; git's name of it."""
        env, out = self.folder / "env", self.folder / "out"
        before = self.folder / "installed.tar"
        self._regular(out / "tree.tar").replace(before)
        mounts = [
            Mount(source=env, target=DEPENDENCIES),
            Mount(source=out, target=OUT, writable=True),
            parts.tree_mount(before),
            *(Mount(source=Path(path), target=path) for path in self.shown),
        ]
        with self._box(mounts, network=False) as box:
            box.unpack()
            for command in self.recipe.build:
                self._run(box, "build", command, timeout_s)
            names = _TREE_NAME.findall(self._run(box, "freeze", _BASELINE, 600.0, OWN))
        if not names:
            raise WorkspaceError("can't freeze: git did not name the tree", f"see {LOG}")
        before.unlink()
        packed = self._regular(out / "tree.tar")
        self._own(packed)
        packed.replace(self.folder / "tree.tar")
        store.remove(out)
        return str(names[-1])

    def _box(self, mounts: Sequence[Mount], *, network: bool) -> Box:
        return Box(
            self.layer,
            self.backend,
            self.recipe,
            limits=self._limits(),
            mounts=mounts,
            network="internet" if network else "none",
            reach=self.reach,
            user=self._user,
        )

    def _run(
        self,
        box: Box,
        what: str,
        command: str,
        timeout_s: float,
        variables: Mapping[str, str] | None = None,
    ) -> str:
        """Run a command that has to succeed; what it said, which the log keeps too."""
        self.log(f"{what}: {command}" if what in ("install", "build") else what)
        result, reason = attend(box, command, timeout_s, self.problem, variables)
        with (self.folder / LOG).open("ab") as kept:
            kept.write(f"$ {command}\n".encode() + result.stdout + b"\n")
        if reason:
            hint = "make room, or raise the recipe's disk_bytes"
            raise WorkspaceError(f"can't {what}: {command!r}: {reason}", hint)
        return parts.must(result, what, command).text

    def problem(self) -> str:
        """Say what is wrong with the disk, which has no size of its own in ``env``; empty: nothing."""
        if (taken := store.size(self.folder)) > self.recipe.disk_bytes:
            return f"it has written {taken} bytes; disk_bytes allows {self.recipe.disk_bytes}"
        free = shutil.disk_usage(self.folder).free
        if free < RESERVE_BYTES:
            return f"only {free} bytes are left on the disk; {RESERVE_BYTES} are kept free"
        return ""

    def _writable(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        self._give(folder)
        return folder

    def _give(self, folder: Path) -> None:
        """Let the sandbox's user write a folder and what is in it."""
        if os.geteuid() != 0:
            folder.chmod(0o777 if self.backend == "docker" else 0o755)
            return
        os.chown(folder, self._user, self._user)
        for path in store.below(folder):
            os.chown(path, self._user, self._user, follow_symlinks=False)

    def _settle(self, env: Path) -> None:
        """Read the pins and make everything in ``env`` readable, owned by whoever builds."""
        try:
            text = read_regular(env / Path(PINS).name, _MAX_PINS).decode(errors="replace")
            self.pins = tuple(line for line in text.splitlines() if line.strip())
        except FileNotFoundError:
            pass  # it resolves to nothing
        except OSError as error:
            raise WorkspaceError(f"{PINS} can't be read: {error}", "correct the recipe") from error
        shutil.rmtree(env / ".uv", ignore_errors=True)
        for path in store.below(env):
            self._own(path)

    def _regular(self, path: Path) -> Path:
        """Read the file that a sandbox has left at ``path``, if it leads nowhere else."""
        try:
            kind = path.lstat().st_mode
        except OSError:
            kind = 0
        if not stat.S_ISREG(kind):
            raise WorkspaceError(
                f"{OUT}/{path.name} is not a regular file: a command of the recipe has replaced it",
                "correct the recipe",
            )
        return path

    def _own(self, path: str | Path) -> None:
        """Give a file to whoever builds and let everybody read it."""
        info = os.lstat(path)
        if os.geteuid() == 0:
            os.chown(path, 0, 0, follow_symlinks=False)
        if stat.S_ISLNK(info.st_mode):
            return
        if os.geteuid() == 0 or info.st_uid == os.geteuid():
            executable = stat.S_ISDIR(info.st_mode) or info.st_mode & 0o111
            os.chmod(path, 0o755 if executable else 0o644)


def _caches(kept: bool) -> dict[str, str]:
    """Where package managers keep what they fetch."""
    place = DOWNLOADS if kept else "/tmp"
    # beside what is installed, uv links instead of copying
    uv = f"{DOWNLOADS}/uv" if kept else f"{DEPENDENCIES}/.uv"
    names = {"npm_config_cache": "npm", "GOMODCACHE": "go", "COMPOSER_CACHE_DIR": "composer"}
    return {"UV_CACHE_DIR": uv, **{name: f"{place}/{folder}" for name, folder in names.items()}}


def _prefix(python: str, layer: layers.Layer) -> tuple[str, ...]:
    """The folder of an interpreter that is not part of the layer."""
    prefix = str(Path(python).resolve().parent.parent)
    return () if not layer.is_host or prefix == "/usr" else (prefix,)


def _tools(recipe: Recipe) -> list[Mount]:
    """``uv``, for recipes that install Python packages."""
    if recipe.install and not any("uv " in command for command in recipe.install):
        return []
    try:
        from uv import find_uv_bin
    except ImportError:
        raise MissingToolError("uv is not installed", install_hint("code")) from None
    return [Mount(source=Path(find_uv_bin()), target=f"{TOOLS}/uv")]
