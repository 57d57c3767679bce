"""The family of proofs: a statement, a proof system, and a checker that decides."""

from envgen.core.families import INWARD, Family
from envgen.core.types import ToolSpec
from envgen.verifiers.proof_verdict import MAX_PROOF_CHARS


def submit_proof_spec(name: str) -> ToolSpec:
    """The tool that ends an episode of a proof."""
    return ToolSpec(
        name=name,
        description="Submit the proof. This ends the task, so call it once, at the end.",
        parameters={
            "type": "object",
            "properties": {
                "answer_text": {
                    "type": "string",
                    "maxLength": MAX_PROOF_CHARS,
                    "description": "The text of the whole proof; empty: the steps that were applied.",
                }
            },
            "additionalProperties": False,
        },
    )


PROOF = Family(
    name="proof",
    env="envgen.environments.proof:ProofEnv",
    validator="envgen.pipelines.proof.validate:ProofValidator",
    generate="envgen.pipelines.proof.generate:generate_proofs",
    command="envgen.cli.proof:ProofCommand",
    readable="envgen.pipelines.proof.show:readable",
    submit=submit_proof_spec,
    tags=("agent", "proof", "math", "tool-use"),
    solution_file="proof.json",
    verifier_file="statement.json",
    measured=False,
    packed=True,
    shipped="package:proofs",
    gates={
        "checked": INWARD,
        "true": "all rows of the truth table, or small groups and lattices: what is true, where proofs are"
        " made by rules (nothing of Metamath)",
        "needed": "the same truth table without each hypothesis",
        "near_proofs": INWARD,
    },
    about="""\
**Proofs.** Each statement has a proof that a small checker accepts. Truth tables or finite models, which know
no rules, agree that statements of logic and algebra are true, and near-proofs of them were \
refused at the very
step at which an error was planted.""",
)
