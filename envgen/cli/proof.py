"""Proofs that a checker judges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from envgen.cli.command import Command, Makes, Parallel
from envgen.cli.console import fail, remark, require
from envgen.pipelines.proof.config import ProofConfig


class CheckProof(Command):
    """Judge a proof: accepted, or the first wrong step and why, with exit code 1.

    The file states what is proven ("given: P -> Q", "given: P", "goal: Q"), and then the steps, one a line:
    "3. Q [implies-elim 1 2]". With "algebra: group" it is a chain of equal terms (docs/proofs.md). Of a
    Metamath database, FILE.mm, every theorem is checked.
    """

    places = {"FILE": "file"}
    examples = ("envgen check-proof proof.txt", "envgen check-proof set.mm")
    verb = "envgen.pipelines.proof.proof_file:check_proof"

    file: Path
    """Statement and steps."""

    def tell(self, report: Any) -> None:
        """Show the verdict."""
        super().tell(report)
        if not report.accepted:
            remark(f"error: wrong at step {report.line}: {report.reason}")
            fail()


class ProofCommand(Parallel, ProofConfig, Makes):
    """Make statements to prove, each with a proof that a checker accepts.

    Needs no model. Deduction: propositional logic, with lemmas to cite; equational: chains of equal terms in
    an algebra; metamath: theorems of a database from what stands before them. Truth tables and finite models
    confirm statements of the first two.
    """

    examples = (
        "envgen generate proof --out proofs/",
        "envgen generate proof --system equational --problems 500 --out chains/",
    )
    verb = "envgen.pipelines.proof.generate:generate_proofs"

    def tell(self, summary: Any) -> None:
        """Report when there are fewer statements than asked for."""
        super().tell(summary)
        require(summary.tasks, self.problems, "statements made", "ask for more systems or levels")
