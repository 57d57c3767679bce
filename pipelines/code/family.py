"""The family of code tasks: a repository with an issue, its own tests as the judge."""

from envgen.core.families import Family
from envgen.core.sampler import code_submit_spec
from envgen.core.types import Evidence, TaskSpec


def proven_verdicts(task: TaskSpec) -> str:
    """How many verdicts of a task are proven, and the chance of a blind guess at one of them."""
    gate = next((result for result in task.evidence if result.gate == "verdicts"), None)
    if gate is None or not gate.figure:
        return "none: report believed"
    odds = gate.details.get("odds")
    guess = f", odds <= 1/{1 / odds:.0f}" if isinstance(odds, float) and odds else ""
    return f"{gate.figure:.0f} of {gate.n}{guess}"


def is_proven(evidence: Evidence) -> bool:
    """Whether every verdict of a task is proven."""
    gate = next((one for one in evidence if one.gate == "verdicts"), None)
    if gate is None:
        return all(one.gate != "fail_to_pass" for one in evidence)
    return gate.figure == gate.n


CODE = Family(
    name="code",
    env="envgen.environments.code:CodeEnv",
    validator="envgen.pipelines.code.revalidate:CodeValidator",
    generate="envgen.pipelines.code.generate:generate_code",
    command="envgen.cli.code:Code",
    tags=("agent", "code", "issue-resolution", "tool-use"),
    submit=code_submit_spec,
    solution_file="gold.patch",
    verifier_file="verifier.json",
    surrogates=True,
    measured=False,
    sessions=4,
    columns={"verdicts proven": proven_verdicts},
    legend=(
        "verdicts proven: fail-to-pass tests whose verdict follows what they expect, of all, and the odds of"
        " a blind guess; a patch that an earlier one or another sandbox tells the answer passes, too, where"
        " the judging machine can't forget (envgen doctor, docs/code.md)",
    ),
    gates={
        "gold": "the repository's own tests, on its maintainers' change",
        "empty_patch": "the same tests, on the commit before",
        "tests_alone": "the same tests, with no other part of the change",
        "fail_to_pass": "what the tests' own framework reports of each, before and after",
        "pass_to_fail": "the same of tests that passed before",
        "stable": "the same tests, run again",
        "verdicts": "the tests' own assertions, with other values expected",
    },
    is_proven=is_proven,
    about="""\
**Code tasks.** Each is a real change of a public repository at a real commit: code, tests and gold patch are
its authors', under the repository's licence (below; `unknown` where no licence file was recognised, so look
before you pass it on). Statements are issues or pull requests as they were written, or written by a model
where there were none. The verifier runs the repository's own tests, those that failed before the change and
pass after it, and those that pass on both sides.""",
)
