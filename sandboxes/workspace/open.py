"""Open a built workspace: a sandbox with the repository at ``/work/repo``, no network."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from envgen.core.code_types import DEPENDENCIES, REPOSITORY, Recipe
from envgen.core.errors import WorkspaceError
from envgen.core.limits import Label, Seconds
from envgen.core.types import Record
from envgen.sandboxes.base import ExecResult, Mount
from envgen.sandboxes.untrusted_files import read_owned
from envgen.sandboxes.workspace import forget, images, parts, store
from envgen.sandboxes.workspace.layers import Layer, host_mounts
from envgen.sandboxes.workspace.parts import TREE, Box, WorkspaceLimits

logger = logging.getLogger(__name__)

_GIT = "export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_OPTIONAL_LOCKS=0"
PRISTINE = f"""set -e
place=$(mktemp -d); trap 'rm -rf "$place"' EXIT
tar -xf {TREE} -C "$place" --no-same-owner repo/.git
{_GIT}
export GIT_DIR="$place/repo/.git" GIT_WORK_TREE={REPOSITORY}
"""
"""Use the frozen ``.git``: the one in the tree may have been changed, hooks and all."""
_QUICK_S = 120.0
_MAX_RECORD = 16 << 20
_RESTORE = f"""cd {REPOSITORY}
export GIT_INDEX_FILE="$place/index" LC_ALL=C
cat > "$place/specs"
git read-tree {{tree}}
tar --quoting-style=literal -tf {TREE} | sed -n 's:^repo/::p' > "$place/known"
xargs -0 git ls-files -z --others -- < "$place/specs" > "$place/others"
{{{{ grep -zvxFf "$place/known" "$place/others" || true; }}}} | xargs -0r rm -rf --
xargs -0 git ls-files -z --cached -- < "$place/specs" > "$place/found"
sort -zu "$place/found" > "$place/wanted"
git checkout-index -f -z --stdin < "$place/wanted"
[ ! -s "$place/wanted" ] || sed -z 's:^:repo/:' "$place/wanted" |
  tar -xf {TREE} -C {REPOSITORY}/.. --no-same-owner --no-wildcards --null --verbatim-files-from -T -
"""
"""Git removes what is in the way, links too; the tar brings the old times, so that a build makes only anew
what was made from other files. Of many specs xargs makes several lists, and tar takes a name once."""


class Workspace(Record):
    """A built workspace on the disk. It can be pickled and opened anywhere on this machine."""

    key: Label
    folder: Path
    recipe: Recipe
    """With the pins that its install resolved to."""
    layer: Layer
    backend: Label
    """``bubblewrap`` or ``docker``."""
    baseline: Label
    """Git's name of the tree after the build; a diff is taken against it."""
    shown: tuple[Label, ...] = ()
    """Folders of this machine that are shown inside, e.g. an interpreter's."""
    image: Label | None = None
    """The image that holds ``/env`` and the tree (docker, layers other than ``host``)."""
    built_s: Seconds = 0.0

    @property
    def tree(self) -> Path:
        """The frozen tree: the repository at the base commit, built."""
        return self.folder / "tree.tar"

    def mounts(self) -> tuple[Mount, ...]:
        """List the folders of this machine that its sandbox sees, read-only."""
        if self.backend == "docker" and self.image is not None:
            return ()
        own = Mount(source=self.folder / "env", target=DEPENDENCIES)
        more = [Mount(source=Path(path), target=path) for path in self.shown]
        return (own, parts.tree_mount(self.tree), *more)

    def open(self, limits: WorkspaceLimits | None = None) -> OpenWorkspace:
        """A fresh sandbox with the tree in it. Raises WorkspaceError, SandboxError."""
        return OpenWorkspace(self, limits)

    def forget(self) -> bool:
        """Drop what its sandboxes have read and looked up from the kernel's caches (``forget``).

        Returns False where names could not be dropped: this process is not root of the machine.

        Raises SandboxError when the engine does not tell where an image's files are.
        """
        places = [*forget.of_programs(), *(mount.source for mount in self.mounts())]
        if self.backend == "docker" and (image := self.image or self.layer.image):
            places += (found := images.folders(image))
            if not any(os.access(place, os.R_OK | os.X_OK) for place in found):
                logger.warning(
                    "the files of Docker's images can't be read here: a patch may remember tests in the "
                    "page cache; judge as root, on the engine's own machine"
                )
        elif self.layer.root is not None:
            places.append(self.layer.root)
        else:
            places += [*forget.of_host(), *(mount.source for mount in host_mounts())]
        if forget.everything():
            return True
        forget.pages(dict.fromkeys(places))
        return False


def load(folder: Path) -> Workspace:
    """A workspace from its folder. Raises WorkspaceError when there is none or it is not whole."""
    try:
        content = read_owned(folder, store.RECORD, _MAX_RECORD)
        found = Workspace.model_validate_json(content)
    except (OSError, ValueError) as error:
        raise WorkspaceError(f"{folder} is not a workspace: {error}", "build it again") from error
    return found.model_copy(update={"folder": folder})


def _pathspecs(path: str) -> tuple[str, str]:
    """Git's words for a path that may be a name or a glob."""
    if path.startswith(("/", ":")) or ".." in path.split("/") or "\0" in path:
        raise WorkspaceError(
            f"{path!r} is not a path in the repository", "give it relative to the root"
        )
    return f":(top,literal){path}", f":(top,glob){path}"


class OpenWorkspace:
    """A sandbox in which a repository can be changed, built and tested. A context manager."""

    def __init__(self, workspace: Workspace, limits: WorkspaceLimits | None = None) -> None:
        self.workspace = workspace
        self._claim = store.Claim(workspace.folder)
        try:
            self._box = Box(
                workspace.layer,
                workspace.backend,
                workspace.recipe,
                limits=limits,
                mounts=workspace.mounts(),
                image=workspace.image if workspace.backend == "docker" else None,
            )
        except BaseException:
            self._claim.close()
            raise
        self.sandbox = self._box.sandbox
        try:
            self._box.unpack()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> OpenWorkspace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def variables(self) -> dict[str, str]:
        """Variables of every command, e.g. for ``sandbox.spawn``."""
        return dict(self._box.variables)

    def shell(
        self,
        command: str,
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
    ) -> ExecResult:
        """Run a bash command line in the repository; what it leaves running ends with it."""
        return self._box.shell(command, timeout_s, env, stdin)

    def own(self, command: str, timeout_s: float, stdin: bytes = b"") -> ExecResult:
        """Run a command line of envgen's: no program that an install has brought can stand in for it."""
        return self._box.own(command, timeout_s, stdin)

    def build(self, timeout_s: float | None = None) -> None:
        """Run the recipe's build commands. Raises WorkspaceError with the one that failed."""
        for command in self.workspace.recipe.build:
            parts.must(self.shell(command, timeout_s), "build", command)

    def apply(self, patch: bytes) -> None:
        """Apply a git diff, all of it or nothing. Raises WorkspaceError when it does not fit."""
        if not patch.strip():
            return
        if not patch.endswith(b"\n"):
            patch += b"\n"
        command = "git apply --binary --whitespace=nowarn -"
        result = self.own(f"{_GIT}; {command}", _QUICK_S, patch)
        parts.must(result, "apply the patch", command)

    def restore(self, paths: Iterable[str]) -> None:
        """Put files back as they were when the workspace was opened; remove those that were not there.

        Args:
            paths: file names, folders or globs (``**/conftest.py``) relative to the repository.

        Raises:
            WorkspaceError: a path leaves the repository.
        """
        specs = [spec for path in paths for spec in _pathspecs(path)]
        if not specs:
            return
        script = PRISTINE + _RESTORE.format(tree=self.workspace.baseline)
        listed = "".join(f"{spec}\0" for spec in specs).encode("utf-8", "surrogateescape")
        result = self.own(script, _QUICK_S, listed)
        parts.must(result, "restore files", "git checkout-index")

    def diff(self) -> bytes:
        """Return the changes since the workspace was opened, as a git diff (binary files included).

        Files that git ignores are left out.
        """
        base = self.workspace.baseline
        script = f"""{PRISTINE}cd {REPOSITORY}
git read-tree {base}
git add --all . >/dev/null
new=$(git write-tree)
git diff --binary --full-index --no-color --no-ext-diff --no-textconv --no-renames {base} "$new"
"""
        result = parts.must(self.own(script, _QUICK_S), "take the diff", "git diff")
        if result.truncated:
            raise WorkspaceError(
                f"the diff is larger than {self.sandbox.spec.output_bytes} bytes",
                "raise Limits.output_bytes, or remove the files that were made",
            )
        return result.stdout

    def read(self, path: str, max_bytes: int = 64 << 20) -> bytes:
        """A file of the repository. Raises SandboxError for links, ``..`` and missing files."""
        return self.sandbox.read_file(f"{REPOSITORY}/{path}", max_bytes)

    def write(self, path: str, content: bytes) -> None:
        """Write a file of the repository, making its folders."""
        self.sandbox.write_file(f"{REPOSITORY}/{path}", content)

    def close(self) -> None:
        """End everything in it. May be called again."""
        try:
            self._box.close()
        finally:
            self._claim.close()
