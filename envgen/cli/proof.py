"""Proofs that a checker judges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from envgen.cli.command import Command
from envgen.cli.console import fail, remark


class CheckProof(Command):
    """Judge a proof: accepted, or the first wrong step and why, with exit code 1.

    The file states what is proven ("given: P -> Q", "given: P", "goal: Q"), and then the steps, one a line:
    "3. Q [implies-elim 1 2]". With "algebra: group" it is a chain of equal terms (docs/proofs.md).
    """

    places = {"FILE": "file"}
    examples = ("envgen check-proof proof.txt",)
    verb = "envgen.pipelines.proof.proof_file:check_proof"

    file: Path
    """Statement and steps."""

    def tell(self, report: Any) -> None:
        """Show the verdict."""
        super().tell(report)
        if not report.accepted:
            remark(f"error: wrong at step {report.line}: {report.reason}")
            fail()
