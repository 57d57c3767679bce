"""The ways envgen fails.

* EnvgenError
  x ConfigError (also ValueError)    the caller asked for something impossible
  x SandboxError
    - SandboxUnavailableError        the backend is missing or can't give what was asked
    - SandboxTimeoutError            a sandboxed worker did not answer in time
    - WorkerDiedError                a sandboxed worker ended without an answer
  x WorkspaceError                   a repository can't be taken, built, opened or patched
    - MissingToolError               this machine lacks a program, an interpreter or a language layer
  x VerifierError                    the verifier itself is broken
    - UnjudgedError                  an open answer that no judge has scored
    - ReportError                    a test run left no JUnit XML, or none that can be read
  x EnvError                         the environment itself is broken
    - ToolFaultError                 a tool raised what its spec does not document
    - ToolTimeoutError               a tool call went past its own limit of time
    - ToolsDiedError                 what an episode's tools run in died; who caused it is not known yet
  x PipelineError                    a stage could not run
  x StoreError
    - DatasetError                   a dataset folder is corrupt, hostile or unproven
    - ResumeError                    a run folder belongs to another config or dataset
    - CheckpointError                a model folder lacks something, or does not fit its config.json
  x PolicyError                      a model server failed for good
  x SearchEngineError                a search engine of the web gave no answer that can be used
  x ContractError                    an implementation breaks its contract
  x MissingExtraError (also ImportError)  a package of one of envgen's extras is not installed

A failed program is an ``ExecResult``; a wrong answer is a ``Score``; neither is an error.
Subclasses define no ``__init__``, so every error survives pickling.
"""

from __future__ import annotations

DISTRIBUTION = "envgen-gym"
"""What ``pip`` installs; on PyPI the name ``envgen`` belongs to another project."""


class EnvgenError(Exception):
    """Base of every error that envgen raises on purpose."""

    @property
    def hint(self) -> str:
        """Say what the reader can do about it: the second argument, or nothing."""
        return str(self.args[1]) if len(self.args) > 1 else ""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ConfigError(EnvgenError, ValueError):
    """Raised when a setting or argument can't be honoured."""


class SandboxError(EnvgenError):
    """Raised when a sandbox (not the program in it) fails."""


class SandboxUnavailableError(SandboxError):
    """Raised when a backend is missing here or can't give a required guarantee."""


class SandboxTimeoutError(SandboxError):
    """Raised when a worker gave no answer in time; the worker has been killed."""


class WorkerDiedError(SandboxError):
    """Raised when a worker ended without an answer."""


class WorkspaceError(EnvgenError):
    """Raised when a repository can't be taken from its clone, built, opened or patched."""


class MissingToolError(WorkspaceError):
    """Raised when this machine lacks what a workspace needs: no fault of the repository."""


class VerifierError(EnvgenError):
    """Raised when a verifier crashes, hangs or breaks its contract."""


class UnjudgedError(VerifierError):
    """Raised for the answer to an open question where there is no judge, or it can't tell: it is no 0."""


class ReportError(VerifierError):
    """Raised when a test run left no JUnit XML, or none that can be read: nothing is known of it."""


class EnvError(EnvgenError):
    """Raised when an environment breaks through no fault of the agent."""


class BrokenStepError(EnvError):
    """Raised when a step does what nobody foresaw: a fault of ours, or one that an action brings about."""


class ToolFaultError(EnvError):
    """Raised when a tool fails in a way that its spec does not document; its worker has been ended."""


class ToolTimeoutError(EnvError):
    """Raised when a tool call goes past its own limit of time; its worker has been ended."""


class ToolsDiedError(EnvError):
    """Raised when the worker or workspace of an episode's tools has died."""


class PipelineError(EnvgenError):
    """Raised when a pipeline stage can't run."""


class TargetsMissedError(PipelineError):
    """Raised when no task is as hard as was asked for; the nearest figures are told."""


class StoreError(EnvgenError):
    """Raised when stored data can't be read or written."""


class DatasetError(StoreError):
    """Raised when a dataset folder is corrupt, hostile, too new or unproven."""


class ResumeError(StoreError):
    """Raised when a run folder was made with another config or dataset."""


class CheckpointError(StoreError):
    """Raised when a model folder can't be read or written, or its parts don't fit together."""


class PolicyError(EnvgenError):
    """Raised when a policy can't answer (server down, budget spent, nonsense replies)."""

    @property
    def status(self) -> int | None:
        """The HTTP status of a model server's refusal: the third argument, if there is one."""
        return int(self.args[2]) if len(self.args) > 2 else None


class SearchEngineError(EnvgenError):
    """Raised when a search engine of the web gives no answer, or none that can be used."""


class ContractError(EnvgenError):
    """Raised by the checkers when an implementation breaks its contract."""


class MissingExtraError(EnvgenError, ImportError):
    """Raised when a package that one of envgen's extras brings is not installed."""


def install_hint(extra: str) -> str:
    """The command that installs what ``extra`` needs, for the hint of an error."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
