"""Recipes by rule: how to build a repository and run its tests, read from the project's own files.

One file per language. ``detect_recipe`` asks the right one.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from envgen.core.code_types import CodeLanguage, Recipe
from envgen.pipelines.code.recipes.files import TreeFiles

_MODULES = {
    "python": "python",
    "javascript": "javascript",
    "typescript": "javascript",
    "c": "cpp",
    "cpp": "cpp",
    "go": "go",
    "java": "java",
    "php": "php",
}


def detect_recipe(
    tree: Path, language: CodeLanguage, cutoff: str | None = None, *, layer: str = "host"
) -> Recipe:
    """How to build and test the repository in ``tree``.

    Args:
        tree: a tar of ``base_tree``, or a folder that holds the repository.
        language: the language its tests are written in.
        cutoff: dependencies are of this day (ISO) or older.
        layer: the language layer to build on.

    Raises:
        WorkspaceError: nothing in the repository tells how to build it.
    """
    module = import_module(f"envgen.pipelines.code.recipes.{_MODULES[language]}")
    recipe: Callable[..., Recipe] = module.recipe
    more = {"layer": layer} if language == "python" else {}
    found = recipe(TreeFiles(tree), language, cutoff, **more)
    return found.model_copy(update={"layer": layer})
