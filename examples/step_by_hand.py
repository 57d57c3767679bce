"""Step one episode by hand: look at the tools, make a call, submit an answer, read the score.

    python examples/step_by_hand.py [DATASET TASK]

Without a dataset it plays the trip task that is shipped in the package.
"""

from __future__ import annotations

import json
import sys

import gymnasium

import envgen  # noqa: F401  # registers the environments


def call(name: str, **arguments: object) -> str:
    """The action that calls one tool."""
    return json.dumps({"content": "", "tool_calls": [{"name": name, "arguments": arguments}]})


def main() -> None:
    """Play one episode badly."""
    options = {}
    if len(sys.argv) > 2:
        env = gymnasium.make("envgen/General-v0", dataset=sys.argv[1])
        options = {"task_id": sys.argv[2]}
    else:
        env = gymnasium.make("envgen/TripPlanning-v0")
    observation, info = env.reset(seed=0, options=options)
    print(observation)
    print("tools:", ", ".join(tool["function"]["name"] for tool in info["tools"]))

    observation, *_ = env.step(call("no_such_tool"))  # mistakes are observations, not exceptions
    print("observation:", observation)

    observation, reward, terminated, _, info = env.step(call("submit_result", answer_text="[]"))
    print(f"reward {reward}, terminated {terminated}, broken rules: {list(info['reasons'])}")
    env.close()


if __name__ == "__main__":
    main()
