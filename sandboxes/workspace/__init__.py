"""Workspaces: a repository at one commit, built once, opened many times in sandboxes.

``base_tree`` takes a commit out of a clone, ``build_workspace`` builds it by a recipe, and
``Workspace.open`` starts a sandbox with it.
"""

from envgen.sandboxes.workspace.build import build_workspace
from envgen.sandboxes.workspace.open import OpenWorkspace, Workspace, load
from envgen.sandboxes.workspace.parts import Halt, WorkspaceLimits
from envgen.sandboxes.workspace.tree import base_tree, commit_date

__all__ = [
    "Halt",
    "WorkspaceLimits",
    "OpenWorkspace",
    "Workspace",
    "base_tree",
    "build_workspace",
    "commit_date",
    "load",
]
