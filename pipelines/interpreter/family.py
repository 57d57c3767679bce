"""The family of code-interpreter tasks: a problem, a Jupyter kernel, and one answer."""

from envgen.core.families import INWARD, Family

INTERPRETER = Family(
    name="interpreter",
    env="envgen.environments.interpreter:InterpreterEnv",
    validator="envgen.pipelines.interpreter.validate:InterpreterValidator",
    generate="envgen.pipelines.interpreter.generate:generate_interpreter",
    command="envgen.cli.interpreter:InterpreterCommand",
    tags=("agent", "code-interpreter", "math", "tool-use"),
    solution_file="problem.json",
    verifier_file="answer.json",
    measured=False,
    sessions=32,
    packed=True,
    shipped="package:interpreter_problems",
    gates={
        "derived_twice": INWARD,
        "near_answers": INWARD,
        "computed": "SymPy, NumPy, SciPy or pandas, where gold's code calls them; elsewhere inward",
    },
    about="""\
**Code-interpreter tasks.** Each answer was derived by two methods written apart, and a third time by code in
the very kernel that agents use. Answers are compared by their type; near ones were refused.""",
)
