"""The resources that episodes of one process share: open datasets, running tools and verifiers.

Everything is keyed by process id, because vector environments fork. In a forked child the
parent's objects are neither used nor closed; the child starts its own.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Sequence
from multiprocessing import util
from pathlib import Path
from typing import NamedTuple

from envgen.core.canonical import compact
from envgen.core.errors import DatasetError, EnvError, EnvgenError
from envgen.core.registry import near_names
from envgen.core.types import PublicTask, Score, Submission
from envgen.environments.loading import load_task
from envgen.environments.toolbox import Toolbox
from envgen.sandboxes.tools import ToolHost, ToolSession, tool_host
from envgen.sandboxes.verifier import VerifierHost, VerifierInput, VerifierReply, verifier_host
from envgen.sandboxes.zygote import Isolation, WorkerBackend, choose
from envgen.store.dataset import Dataset
from envgen.store.manifest import MANIFEST
from envgen.store.recent import Recent
from envgen.verifiers.general import GeneralVerifier

MAX_TOOL_HOSTS = 64
"""Idle environments beyond this many are shut down, the least recently used first."""
MAX_TASKS = 4_096
PACKAGE_PREFIX = "package:"
PACKAGE_DATA = Path(__file__).parent / "data"


class Task(NamedTuple):
    """A task as an episode needs it."""

    public: PublicTask
    toolbox: Toolbox
    verifier: GeneralVerifier
    database: Path
    own_database: bool
    """Whether the database is another than the environment's (a variant's)."""


class Lease:
    """An episode's tools; closing it lets the environment become idle."""

    def __init__(self, session: ToolSession, hosts: DatasetHosts, environment_id: str) -> None:
        self.session = session
        self._hosts = hosts
        self._environment_id = environment_id
        self._open = True

    @property
    def cpu_s(self) -> float:
        """Seconds on the processor that its calls have taken."""
        return self.session.cpu_s

    def close(self) -> None:
        """End the episode's tools; harmless a second time."""
        if self._open:
            self._open = False
            try:
                self.session.close()
            finally:
                self._hosts.release(self._environment_id)


class _Running(NamedTuple):
    host: ToolHost
    leases: list[int]
    """One element per open lease."""


class DatasetHosts:
    """Tools and verifiers of one dataset, started when first needed. Thread-safe."""

    def __init__(
        self, dataset: Dataset, backend: WorkerBackend, isolate: Isolation = "environment"
    ) -> None:
        self.dataset = dataset
        self._backend = backend
        self._isolate = isolate
        self._trusted = dataset.trusted
        self._lock = threading.RLock()
        self._running: OrderedDict[str, _Running] = OrderedDict()
        self._verifiers = _LazyVerifierHost(backend, self._trusted)
        self._usable: str | None = None
        """The backend that is really used, found out before the first episode."""
        self._toolboxes: dict[str, Toolbox] = {}
        self._tasks = Recent(self._load, MAX_TASKS)

    def toolbox(self, environment_id: str) -> Toolbox:
        """The compiled tools of an environment; starts nothing."""
        with self._lock:
            if environment_id not in self._toolboxes:
                spec = self.dataset.environments[environment_id]
                self._toolboxes[environment_id] = Toolbox(spec)
            return self._toolboxes[environment_id]

    def task(self, task_id: str) -> Task:
        """A task, ready to be played.

        Raises:
            ConfigError: if the dataset has no such task, or it is of another family.
            SandboxUnavailableError: if untrusted code can't be isolated here.
        """
        with self._lock:
            if self._usable is None:
                self._usable = choose(self._backend, self._trusted, self._isolate)
        return self._tasks(task_id)

    def _load(self, task_id: str) -> Task:
        files = load_task(self.dataset, task_id, "general")
        spec = files.spec
        database = self.dataset.database(task_id)
        if database is None:
            raise EnvError(f"environment {spec.environment_id!r} has no database")
        return Task(
            public=spec.public(self.dataset.environments[spec.environment_id]),
            toolbox=self.toolbox(spec.environment_id),
            verifier=GeneralVerifier(files.verifier, spec.submit_schema, self._verifiers),
            database=database,
            own_database=spec.variant_of is not None,
        )

    def open(self, task: Task, *, alone: bool = False) -> Lease:
        """Start the tools of an episode; ``alone``: in a sandbox that no other shares.

        Raises:
            EnvError: if the environment does not load.
        """
        environment_id = task.public.environment_id
        with self._lock:
            running = self._running.get(environment_id) or self._start(environment_id)
            self._running.move_to_end(environment_id)
            running.leases.append(1)
        try:
            database = task.database if task.own_database else None
            session = running.host.open(database, alone=alone)
        except BaseException:
            self.release(environment_id)
            raise
        return Lease(session, self, environment_id)

    def judge(self, task: Task, submission: Submission, *, alone: bool = False) -> Score:
        """Score a submission; ``alone``: by a verifier in a sandbox that no other shares.

        Raises:
            VerifierError: if the verifier breaks.
        """
        if not alone:
            return task.verifier.verify(submission)
        host = verifier_host(backend=self._backend, trusted=self._trusted)
        with contextlib.closing(host):
            return task.verifier.moved(host).verify(submission)

    def gold_holds(self, task: Task) -> bool:
        """Whether the verifier passes the task's gold run, so that it is not broken for every answer."""
        try:
            gold = self.dataset.task_files(task.public.id).gold
            if gold is None:
                return False
            with (
                tempfile.TemporaryDirectory(prefix="envgen-") as folder,
                contextlib.closing(self.open(task, alone=True)) as lease,
            ):
                for call in gold.calls:
                    if call.mutates and call.error is None:
                        lease.session.call(call.name, call.arguments)
                final = Path(folder) / "final.sqlite"
                lease.session.snapshot(final)
                submission = Submission.model_construct(
                    raw=compact(gold.answer),
                    answer=None,
                    initial=str(task.database),
                    final=str(final),
                    calls=gold.calls,
                )
                return self.judge(task, submission, alone=True).passed
        except EnvgenError:  # whatever it is, it is broken without this answer, too
            return False

    def release(self, environment_id: str) -> None:
        """Note the end of a lease."""
        with self._lock:
            running = self._running.get(environment_id)
            if running is not None and running.leases:
                running.leases.pop()

    def _start(self, environment_id: str) -> _Running:
        files = self.dataset.environment_files(environment_id)
        if files.database is None:
            raise EnvError(f"environment {environment_id!r} has no database")
        host = tool_host(
            files.tools_source,
            files.spec.tools,
            files.database,
            backend=self._backend,
            trusted=self._trusted,
            isolate=self._isolate,
        )
        running = _Running(host, [])
        self._running[environment_id] = running
        idle = [name for name, one in self._running.items() if not one.leases]
        for name in idle[: max(0, len(self._running) - MAX_TOOL_HOSTS)]:
            if name != environment_id:
                self._running.pop(name).host.close()
        return running

    def close(self) -> None:
        """Shut everything down; open episodes lose their tools."""
        with self._lock:
            running, self._running = list(self._running.values()), OrderedDict()
        for one in running:
            one.host.close()
        self._verifiers.close()


class _LazyVerifierHost:
    """A verifier host that starts at the first submission."""

    def __init__(self, backend: WorkerBackend, trusted: bool) -> None:
        self._backend = backend
        self._trusted = trusted
        self._lock = threading.Lock()
        self._host: VerifierHost | None = None

    def verify_many(
        self, source: str, inputs: Sequence[VerifierInput], timeout_s: float = 10
    ) -> list[VerifierReply]:
        """Pass on to the host."""
        with self._lock:
            if self._host is None:
                self._host = verifier_host(backend=self._backend, trusted=self._trusted)
            host = self._host
        return host.verify_many(source, inputs, timeout_s)

    def close(self) -> None:
        """Shut the host down."""
        with self._lock:
            host, self._host = self._host, None
        if host is not None:
            host.close()


class _Process:
    """The shared objects of one process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.RLock()
        self.datasets: dict[tuple[str, bool, bool, int], Dataset] = {}
        self.hosts: dict[tuple[str, str, str, str, bool], DatasetHosts] = {}
        # Runs at exit of the main process, and of multiprocessing's children (atexit does not).
        util.Finalize(None, self.close, exitpriority=100)

    def close(self) -> None:
        if self.pid != os.getpid():
            return
        with self.lock:
            hosts, self.hosts = list(self.hosts.values()), {}
            self.datasets.clear()
        for one in hosts:
            one.close()


_processes: list[_Process] = []
"""The last is this process's; a parent's stay, so that a child never finalizes their workers."""


def _process() -> _Process:
    if not _processes or _processes[-1].pid != os.getpid():
        _processes.append(_Process())
    return _processes[-1]


def open_dataset(
    dataset: str | Path | Dataset, *, unproven: bool = False, trust: bool = False
) -> Dataset:
    """Open a dataset folder once per process; ``package:NAME`` is one shipped with envgen.

    Args:
        dataset: a folder, or a dataset that is open already and is handed back as it is.
        unproven: also accept tasks whose evidence is missing or negative.
        trust: the caller wrote or read the code in it, which so may run without isolation.

    Raises:
        DatasetError: if it is missing, corrupt, hostile or (without ``unproven``) unproven.
    """
    if isinstance(dataset, Dataset):
        return dataset
    text = str(dataset)
    if text.startswith(PACKAGE_PREFIX):
        path = PACKAGE_DATA / (name := text.removeprefix(PACKAGE_PREFIX))
        shipped = sorted(one.parent.name for one in PACKAGE_DATA.glob(f"*/{MANIFEST}"))
        if name not in shipped:
            raise DatasetError(
                f"no dataset {name[:100]!r} is in the package{near_names(name, shipped)}",
                f"there are {', '.join(shipped)}",
            )
    else:
        path = Path(text).absolute()
    manifest = path / "dataset.json"
    stamp = manifest.stat().st_mtime_ns if manifest.is_file() else 0
    key = (str(path), unproven, trust, stamp)
    process = _process()
    with process.lock:
        if key not in process.datasets:
            process.datasets[key] = Dataset.open(path, unproven=unproven, trust=trust)
        return process.datasets[key]


def hosts_for(
    dataset: Dataset, backend: WorkerBackend = "auto", isolate: Isolation = "environment"
) -> DatasetHosts:
    """The tools and verifiers of a dataset that this process's episodes share."""
    process = _process()
    place = str(dataset.path.absolute())
    key = (place, dataset.manifest.content_hash, backend, isolate, dataset.trusted)
    with process.lock:
        if key not in process.hosts:
            process.hosts[key] = DatasetHosts(dataset, backend, isolate)
        return process.hosts[key]


def close_hosts(dataset: Dataset | None = None) -> None:
    """Shut down the tools and verifiers that this process's episodes share: one dataset's, or all."""
    process = _process()
    if dataset is None:
        process.close()
        return
    head = (str(dataset.path.absolute()), dataset.manifest.content_hash)
    with process.lock:
        hosts = [process.hosts.pop(key) for key in list(process.hosts) if key[:2] == head]
    for one in hosts:
        one.close()
