"""Code-interpreter environments: a problem, a Jupyter kernel as the one tool, and one answer.

Each episode has a kernel in a sandbox of its own, whose variables stay from call to call. What it prints is
shown to the agent and never graded: only what is submitted counts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import JsonValue

from envgen.core.errors import DatasetError
from envgen.core.limits import Label, Text
from envgen.core.types import EnvironmentSpec, Record, Score, ToolErrorSpec, ToolSpec
from envgen.environments.episodes import ToolResult
from envgen.environments.host import HostEnv, submitted_text
from envgen.sandboxes.kernel import CellResult, Kernel, SpareKernels, library_mounts
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.bundles import TaskBundle
from envgen.store.dataset import Dataset
from envgen.verifiers.maths import MathAnswer, accepts

CALL_LIMIT_S = 120.0
MAX_CALLS = 20
"""Executions in an episode, and seconds of each: DeepSeek-V3.2's (arXiv 2512.02556, section 3.2.3)."""
NO_CALLS_LEFT = "no_executions_left"
MAX_CODE = 100_000
PYTHON = ToolSpec(
    name="python",
    description=(
        "Run Python in a Jupyter kernel that keeps its variables from call to call, with numpy, sympy, "
        "scipy, pandas and matplotlib. Returns what is printed and the value of the last expression."
    ),
    parameters={
        "type": "object",
        "properties": {"code": {"type": "string", "minLength": 1, "maxLength": MAX_CODE}},
        "required": ["code"],
        "additionalProperties": False,
    },
    mutates=True,
    errors=(ToolErrorSpec(code=NO_CALLS_LEFT, when="it has been used as often as is allowed"),),
)
POLICY = f"""\
Solve the problem. Python helps: at most {MAX_CALLS} calls, each of at most {CALL_LIMIT_S:.0f} seconds;
there is no network. End with submit_result, whose answer_text is the answer alone, in the form asked for."""


class InterpreterNote(Record):
    """An environment's blueprint."""

    texts: dict[Label, Text] = {}
    """Files in the kernel's working folder, by name."""


def interpreter_environment(env_id: str, title: str, about: str = "") -> EnvironmentSpec:
    """The environment of problems that share their files; ``about`` describes these."""
    return EnvironmentSpec(
        id=env_id,
        category="code-interpreter",
        title=title,
        policy_text=f"{POLICY}\n\n{about}".strip(),
        tools=(PYTHON,),
    )


class InterpreterEnv(HostEnv):
    """Plays code-interpreter tasks; see ``EpisodeEnv`` for observations, actions and the end.

    Args:
        dataset: a dataset folder, ``package:NAME``, or an open ``Dataset``.
        backend: of the kernels' sandboxes; ``process`` isolates nothing, and needs ``trust``.
        trust: the agent's code may run without isolation.
        reuse: keep one kernel for all episodes; only for code that is known.
        options: as ``EpisodeEnv`` takes them.

    Raises:
        SandboxUnavailableError: at ``check`` and at the first call, where no kernel can be isolated or
            ipykernel is missing.
    """

    family = "interpreter"

    def __init__(
        self,
        dataset: str | Path | Dataset,
        *,
        backend: WorkerBackend = "auto",
        trust: bool = False,
        reuse: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(dataset, trust=trust, **options)
        self._spares = SpareKernels(backend, trusted=trust, spares=0 if reuse else 1)
        self._reuse = reuse
        self._kept: Kernel | None = None

    def check(self) -> None:
        """Raise at once if no kernel can be started here."""
        library_mounts()
        self._spares.take().close()

    def _start(self, alone: bool) -> KernelPlace:  # type: ignore[override]  # another place than the host's
        assert self.files is not None
        kernel = self._kept or self._spares.take()
        if self._reuse:
            self._kept = kernel
        place = KernelPlace(kernel, keep=self._reuse)
        blueprint = self.dataset.environment_files(self.files.spec.environment_id).blueprint
        try:
            files = InterpreterNote.model_validate(blueprint or {}).texts
        except ValueError as error:
            raise DatasetError("its environment's files are none") from error
        for path, text in files.items():
            kernel.sandbox.write_file(path, text.encode())
        return place

    def call(self, name: str, arguments: dict[str, JsonValue]) -> ToolResult:
        """Run a cell in the episode's kernel, if one is left."""
        if sum(call.name == name and call.error is None for call in self.calls) >= MAX_CALLS:
            return ToolResult(
                None, NO_CALLS_LEFT, f"it was used {MAX_CALLS} times: submit an answer"
            )
        code = str(arguments["code"])
        cell: CellResult = self._places.do(lambda place: place.run(code))
        return ToolResult(shown(cell))

    def _run(self, name: str, arguments: dict[str, JsonValue]) -> ToolResult:
        return self.call(name, arguments)  # what breaks in it breaks in the kernel

    def judge(self, files: TaskBundle, answer: str) -> Score:
        """1 for the answer."""
        passed = accepts(MathAnswer.model_validate_json(files.verifier), submitted_text(answer))
        return Score(value=float(passed), passed=passed)

    def close(self) -> None:
        """End the episode and its kernels."""
        super().close()
        self._spares.close()
        if self._kept is not None:
            self._kept.close()
            self._kept = None


class KernelPlace:
    """The kernel of one episode."""

    def __init__(self, kernel: Kernel, *, keep: bool = False) -> None:
        self.kernel, self._keep = kernel, keep
        self._before_s = kernel.cpu_s

    @property
    def cpu_s(self) -> float:
        """Seconds on the processor since the episode began."""
        return max(0.0, self.kernel.cpu_s - self._before_s)

    def run(self, code: str) -> CellResult:
        """Run a cell."""
        return self.kernel.run(code, CALL_LIMIT_S)

    def close(self) -> None:
        """End it."""
        if self._keep:
            self.kernel.forget()
        else:
            self.kernel.close()


_NOTES = {
    "timeout": f"interrupted after {CALL_LIMIT_S:.0f} seconds; the variables are kept",
    "lost": "the kernel died and a new one was started: all variables are lost",
}


def shown(cell: CellResult) -> JsonValue:
    """What the agent sees of a cell."""
    value: dict[str, JsonValue] = {"output": cell.output}
    if cell.status != "ok":
        value["status"] = cell.status
    if note := _NOTES.get(cell.status):
        value["note"] = note
    if cell.images:
        value["images"] = cell.images
    return value
