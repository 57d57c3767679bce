"""One instance from its clone to its proof: tree, recipe, workspace, validation; faults are recorded."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from envgen.core.code_types import Instance, Recipe
from envgen.core.errors import EnvgenError, MissingToolError, PolicyError, WorkspaceError
from envgen.core.limits import Label, Line, Name, Seconds, Word
from envgen.core.types import Record, Usage
from envgen.pipelines.boundary import disk_is_full
from envgen.pipelines.code.bundle import environment_id
from envgen.pipelines.code.clone import Clone
from envgen.pipelines.code.leaks import untold, vague
from envgen.pipelines.code.recipes import detect_recipe
from envgen.pipelines.code.setup_agent import BuildAccess, set_up
from envgen.pipelines.code.split import TEST_RULES, classify
from envgen.pipelines.code.validate import Log, validate_instance
from envgen.pipelines.code.validation import Reason, RejectedError, ValidateConfig, Validation
from envgen.policies.base import Policy
from envgen.sandboxes.base import Mount
from envgen.sandboxes.workspace import Workspace, base_tree, build_workspace, commit_date, pool
from envgen.sandboxes.workspace.store import Claim, discard

logger = logging.getLogger(__name__)


class Job(NamedTuple):
    """An instance, and the clone that holds its commits."""

    instance: Instance
    clone: Path
    alone: bool = True
    """Whether no other instance has the same base commit, and so the same workspace."""


class Outcome(Record):
    """What became of an instance."""

    validation: Validation
    recipe: Recipe | None = None
    """As it was frozen; None where none was found or its install failed."""
    build_s: Seconds = 0.0
    usage: Usage = Usage()
    """What looking for a recipe cost."""


class BuildConfig(Record):
    """Where and with what workspaces are built. None of it changes what is built."""

    backend: Literal["auto", "bubblewrap", "docker"] = "auto"
    """Where repositories are built and tested."""
    layer: Name = "host"
    """The language layer; host: this machine's toolchain. ``envgen images list`` names them."""
    certificates: Path | None = None
    """PEM bundle that installs trust. None: ``SSL_CERT_FILE``."""
    variables: dict[Word, Label] = {}
    """Environment variables of installs."""
    mounts: tuple[Mount, ...] = ()
    """Folders of this machine that installs may read, such as a local package index."""
    reach: tuple[Line, ...] = ()
    """Hosts (``name`` or ``name:port``) that are not of the internet and that installs may reach."""
    cache_root: Path | None = None
    """Where built workspaces are kept. None: envgen's cache."""
    downloads: Path | None = None
    """Where installs keep what they have fetched: a folder of its own for each repository, and for each
    clone that ``try-tests`` looks at. What an install runs can write its folder, so none holds another."""
    allow_missing: bool = False
    """Leave out of base trees what a partial clone lacks."""

    def downloads_of(self, owner: str, name: str) -> Path | None:
        """Where the installs of one repository or clone keep what they fetch; None: nowhere.

        ``owner`` has no ``/`` in it, and every folder lies at the same depth: none is inside another.
        """
        return self.downloads and self.downloads / owner / name


def prove(
    job: Job,
    trees: Path,
    config: ValidateConfig,
    build: BuildConfig,
    log: Log | None = None,
    helper: Policy | None = None,
) -> Outcome:
    """Build and validate an instance; never raises for a fault of it.

    Args:
        job: what to prove.
        trees: a folder for the tars of base trees, ``<environment id>.tar``.
        config: how thoroughly.
        build: where and with what.
        log: is told each step as it starts.
        helper: looks for a recipe where the rules find none, or theirs can't be installed.
    """
    started = time.monotonic()
    stage = _Stage(job, trees, build, log or (lambda _: None), helper)
    kept = False
    try:
        _check_statement(job.instance)
        workspace = stage.workspace()
        validation = validate_instance(
            job.instance,
            workspace,
            config,
            test_files=test_files(job),
            test_paths=TEST_RULES[job.instance.language],
            freeze=stage.freeze,
            log=log,
        )
        kept = validation.kept
        return Outcome(
            validation=validation,
            recipe=stage.built[-1].recipe,
            build_s=stage.seconds(),
            usage=stage.usage,
        )
    except RejectedError as error:
        failed = _failed(job, error.reason, error.details, started)
        return failed.model_copy(update={"usage": stage.usage})
    except Exception as error:  # the boundary: one instance falls, the run goes on
        if not isinstance(error, EnvgenError | OSError):
            logger.exception("%s broke the prover", job.instance.id)
        return _failed(job, Reason.ENVGEN, f"{type(error).__name__}: {error}", started)
    finally:
        stage.tidy(kept)


def _check_statement(one: Instance) -> None:
    """Reject a statement that does not tell what the tests need; this takes no build."""
    if why := vague(one.problem_statement, one.kind):
        raise RejectedError(Reason.STATEMENT, why)
    if names := untold(one.problem_statement, one.gold_patch, one.test_patch):
        raise RejectedError(
            Reason.STATEMENT,
            "the tests use names that the fix introduces and the statement does not tell: "
            + ", ".join(names[:5]),
        )


def test_files(job: Job) -> tuple[str, ...]:
    """The test files of the base commit."""
    files = Clone(job.clone).files(job.instance.base_commit)
    return tuple(path for path in files if classify(path, job.instance.language) == "test")


_UNREACHED = re.compile(
    r"Temporary failure in name resolution|[Cc]ould not resolve host|Network is unreachable|ECONNREFUSED"
    r"|ENOTFOUND|EAI_AGAIN|dial tcp|No route to host|Failed to establish a new connection|dns error"
    r"|[Cc]onnection refused|UnknownHostException|[Cc]onnection timed out"
    r"|invalid peer certificate|certificate verify failed|self[- ]signed certificate"
)
"""What installs print if they can't reach a registry: a fault of this machine, not of the repository."""


class _Stage:
    def __init__(
        self,
        job: Job,
        trees: Path,
        build: BuildConfig,
        log: Callable[[str], None],
        helper: Policy | None,
    ) -> None:
        self.helper = helper
        self.usage = Usage()
        self.instance, self.clone = job.instance, job.clone
        self.trees, self.build, self.log = trees, build, log
        self.alone = job.alone
        self.built: list[Workspace] = []
        self.claims: list[Claim] = []
        self.pinned = True

    def seconds(self) -> float:
        """Seconds that the builds took."""
        return sum(workspace.built_s for workspace in self.built)

    def workspace(self) -> Workspace:
        """The workspace of the recipe as it was found. Raises RejectedError."""
        tree = self._tree()
        recipe: Recipe | None = None
        try:
            recipe = self._recipe(tree)
            workspace = self._built(recipe)
        except RejectedError as error:
            if self.helper is None or error.reason not in (Reason.NO_RECIPE, Reason.INSTALL):
                raise
            workspace = self._helped(self.helper, tree, recipe, error)
        before = recipe.pins if recipe is not None else ()
        self.pinned = workspace.recipe.pins == before
        return workspace

    def _helped(
        self, helper: Policy, tree: Path, failed: Recipe | None, fault: RejectedError
    ) -> Workspace:
        """The workspace of a recipe that a policy finds; raises the fault where it finds none."""
        self.log(f"ask {helper.name} for a recipe")
        try:
            found = set_up(
                tree,
                self.instance.language,
                helper,
                cutoff=commit_date(self.clone, self.instance.base_commit),
                failed=failed,
                fault=fault.details,
                layer=self.build.layer,
                access=self._access(),
            )
        except PolicyError as error:
            summary = f"{fault.details}\n{helper.name} could not help: {error}"
            raise RejectedError(fault.reason, summary) from error
        self.usage = found.usage
        if found.workspace is None:
            summary = f"{helper.name}, after {found.turns} turns and {found.builds} recipes"
            raise RejectedError(fault.reason, f"{fault.details}\n{summary}: {found.fault}")
        self.built.append(found.workspace)
        return found.workspace

    def _access(self) -> BuildAccess:
        return BuildAccess(
            backend=self.build.backend,
            certificates=self.build.certificates,
            variables=self.build.variables,
            mounts=self.build.mounts,
            reach=self.build.reach,
            cache_root=self.build.cache_root,
        )

    def freeze(self) -> Workspace:
        """The workspace of the recipe with its pins: what a user of the dataset will build."""
        first = self.built[0]
        return first if self.pinned else self._built(first.recipe)

    def tidy(self, kept: bool) -> None:
        """Remove the workspaces that nobody will open again."""
        last = self.built[-1].folder if self.built and kept else None
        for claim in self.claims:
            claim.close()
        for workspace in self.built:
            if self.alone and workspace.folder != last:
                discard(workspace.folder)
        if self.built:
            pool.sweep(pool.place(self.build.cache_root))

    def _tree(self) -> Path:
        self.log("take the base tree")
        commit, patch = self.instance.base_commit, self.instance.base_patch
        name = environment_id(self.instance.repo, commit, patch)
        tree = self.trees / f"{name}.tar"
        if tree.exists():
            return tree
        try:
            missing = self.build.allow_missing
            return base_tree(self.clone, commit, tree, patch=patch, allow_missing=missing)
        except MissingToolError as error:
            raise _lacking(error) from error
        except WorkspaceError as error:
            raise RejectedError(Reason.NO_TREE, str(error)) from error

    def _recipe(self, tree: Path) -> Recipe:
        if self.instance.recipe is not None:
            return self.instance.recipe
        cutoff = commit_date(self.clone, self.instance.base_commit)
        try:
            return detect_recipe(tree, self.instance.language, cutoff, layer=self.build.layer)
        except MissingToolError as error:
            raise _lacking(error) from error
        except (WorkspaceError, ModuleNotFoundError) as error:
            raise RejectedError(Reason.NO_RECIPE, str(error)) from error

    def _built(self, recipe: Recipe) -> Workspace:
        try:
            workspace = build_workspace(
                recipe,
                self._tree(),
                **self._access().arguments(),
                downloads=self._downloads(),
                log=self.log,
                claims=self.claims,
            )
        except MissingToolError as error:
            raise _lacking(error) from error
        except WorkspaceError as error:
            if disk_is_full(error):
                raise
            reason = Reason.MACHINE if _UNREACHED.search(str(error)) else Reason.INSTALL
            raise RejectedError(reason, str(error)) from error
        self.built.append(workspace)
        return workspace

    def _downloads(self) -> Path | None:
        return self.build.downloads_of(*self.instance.repo.split("/"))


def _lacking(error: MissingToolError) -> RejectedError:
    return RejectedError(Reason.MACHINE, f"{error}; {error.hint}" if error.hint else str(error))


def _failed(job: Job, reason: Reason, details: str, started: float) -> Outcome:
    validation = Validation(
        instance_id=job.instance.id,
        reason=reason,
        details=details,
        wall_s=time.monotonic() - started,
    )
    return Outcome(validation=validation)
