"""Make, prove, step and filter reinforcement-learning environments for language-model agents.

Importing envgen registers its Gymnasium environments (``envgen/General-v0``, ``envgen/Code-v0``, ...).
Every verb of the command line is a function here, loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from envgen.core.version import VERSION
from envgen.environments.registration import register_envs

if TYPE_CHECKING:
    from envgen.environments.hosts import open_dataset as load
    from envgen.pipelines.general.variants import variants
    from envgen.pipelines.generate import generate
    from envgen.pipelines.validate import validate
    from envgen.rollout.filter import filter
    from envgen.rollout.pass_at_k import run_report as pass_at_k
    from envgen.rollout.run import rollout
    from envgen.store.subset import export, merge
    from envgen.train import train
    from envgen.train.evaluate import evaluate_model as evaluate

__version__ = VERSION

__all__ = [
    "__version__",
    "evaluate",
    "export",
    "filter",
    "generate",
    "load",
    "merge",
    "pass_at_k",
    "rollout",
    "train",
    "validate",
    "variants",
]

_VERBS = {
    "evaluate": "envgen.train.evaluate:evaluate_model",
    "export": "envgen.store.subset:export",
    "filter": "envgen.rollout.filter:filter",
    "generate": "envgen.pipelines.generate:generate",
    "load": "envgen.environments.hosts:open_dataset",
    "merge": "envgen.store.subset:merge",
    "pass_at_k": "envgen.rollout.pass_at_k:run_report",
    "rollout": "envgen.rollout:",  # the room itself, which can be called: both have one name
    "train": "envgen.train:",  # the same
    "validate": "envgen.pipelines.validate:validate",
    "variants": "envgen.pipelines.general.variants:variants",
}

register_envs()


def __getattr__(name: str) -> Any:
    if name not in _VERBS:
        raise AttributeError(f"module 'envgen' has no attribute {name!r}")
    module, _, attribute = _VERBS[name].partition(":")
    found: Any = importlib.import_module(module)
    if attribute:
        found = getattr(found, attribute)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
