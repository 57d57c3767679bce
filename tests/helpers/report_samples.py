"""Realistic made-up data for a report."""

from __future__ import annotations

import json
import math
from random import Random

from envgen.core.types import (
    Limits,
    Message,
    PublicTask,
    Score,
    StopReason,
    ToolCall,
    Trajectory,
    Usage,
)
from envgen.report.data import (
    FilterRow,
    FunnelStage,
    GateRow,
    LiftRow,
    PassRow,
    Played,
    ReportData,
    StageTime,
    TaskPath,
    TaskPoint,
    TrainingPart,
)

HOTELS = [
    {"name": "Lotus Court", "city": "Hangzhou", "price": 412, "rating": 44},
    {"name": "West Lake View", "city": "Hangzhou", "price": 688, "rating": 47},
    {"name": "Grand Canal Inn", "city": "Hangzhou", "price": 276, "rating": 41},
    {"name": "Lingyin Guest House", "city": "Hangzhou", "price": 198, "rating": 39},
]
PROMPT = """\
Plan a three-day trip starting in Hangzhou. Visit a different city each day; no city, hotel, \
attraction or restaurant may repeat. If the hotel of day 2 costs 800 yuan or more, that day's \
restaurants together must stay below 350 yuan; between 500 and 799 yuan, below 250; otherwise the \
attraction's ticket must be free.

Submit a JSON list of three objects with the keys "city", "hotel", "attraction" and "restaurant"."""


def episode() -> Trajectory:
    """A passed trip episode."""
    answer = [
        {"city": "Hangzhou", "hotel": "Lotus Court", "attraction": "Leifeng Pagoda"},
        {"city": "Suzhou", "hotel": "Pingjiang Lodge", "attraction": "Tiger Hill"},
        {"city": "Shanghai", "hotel": "Bund Riverside", "attraction": "Yu Garden"},
    ]
    return Trajectory(
        task_id="trip-planning-7-l4-a",
        sample=3,
        policy="openai:qwen3-8b",
        seed=7,
        messages=(
            Message(role="system", content="You are a travel assistant. Use the tools only."),
            Message(role="user", content=PROMPT),
            Message(
                role="assistant",
                reasoning="First I need the hotels in Hangzhou, then two other cities nearby.",
                content="I will look at Hangzhou first.",
                tool_calls=(
                    ToolCall(id="1", name="get_all_hotels_by_city", arguments={"city": "Hangzhou"}),
                ),
            ),
            Message(role="tool", tool_call_id="1", content=json.dumps(HOTELS)),
            Message(
                role="assistant",
                tool_calls=(
                    ToolCall(id="2", name="get_city_transport", arguments={"city": "Hangzhou"}),
                    ToolCall(
                        id="3", name="get_weather", arguments=None, arguments_text='{"city": '
                    ),
                ),
            ),
            Message(role="tool", tool_call_id="2", content='{"Suzhou": 92, "Shanghai": 64}'),
            Message(
                role="tool",
                tool_call_id="3",
                content='{"error": "malformed_arguments", "message": "arguments are no JSON object"}',
            ),
            Message(
                role="assistant",
                tool_calls=(
                    ToolCall(
                        id="4",
                        name="submit_result",
                        arguments={"answer_text": json.dumps(answer)},
                    ),
                ),
            ),
        ),
        score=Score(value=1.0, passed=True),
        stop=StopReason.SUBMITTED,
        num_calls=3,
        reached_verifier=True,
        usage=Usage(prompt_tokens=5321, completion_tokens=842),
    )


def report_data() -> ReportData:
    """A quickstart-sized report."""
    draw = Random(4)
    tasks = []
    for level in range(1, 6):
        for i in range(12):
            value = 10 ** (-0.4 - 0.85 * level + draw.uniform(-0.4, 0.4))
            tasks.append(
                TaskPoint(
                    task_id=f"trip-{level}-{i}",
                    level=level,
                    density=value,
                    density_low=value * 0.7,
                    density_high=value * 1.4,
                    kill_rate=draw.uniform(0.95, 1),
                    gold_calls=level * 3 + draw.randrange(3),
                    distinct_tools=min(15, level * 2 + draw.randrange(3)),
                )
            )
    passes = []
    for policy, strength in (("random-valid", 0.5), ("greedy", 1.4), ("noisy-gold:0.1", 6.0)):
        for group in (1, 2, 3, 4, 5, None):
            p = math.exp(-(group or 2.5) / strength)
            for k in (1, 10, 100):
                value = 1 - (1 - p) ** k
                passes.append(
                    PassRow(
                        policy=policy,
                        level=group,
                        k=k,
                        estimate=value,
                        low=1 - (1 - 0.8 * p) ** k,
                        high=1 - (1 - min(1, 1.2 * p)) ** k,
                        n=1200 if group else 6000,
                        num_tasks=12 if group else 60,
                    )
                )
    return ReportData(
        title="Quickstart: trip planning, order management, meeting scheduling",
        summary="Proven environments made on this machine without a model, played by scripted "
        "policies and filtered by pass@k.",
        facts={
            "envgen": "0.1.0",
            "Python": "3.11.7",
            "SQLite": "3.40.1",
            "seed": "7",
            "sandbox": "bubblewrap 0.8.0",
            "dataset": "9c0e2f61d7aa",
        },
        commands=(
            "envgen generate general --category trip_planning --environments 5 --level 1..5 --out ds/",
            "envgen rollout ds/ --policy random-valid --n 100 --seed 0 --out runs/random-valid",
            "envgen filter ds/ --rollouts runs/random-valid --pass-at 100 --min 0 --out kept/",
        ),
        counts={
            "environments": 15,
            "tasks": 60,
            "rollouts": 18000,
            "kept tasks": 49,
            "seconds": 84.2,
        },
        funnel=(
            FunnelStage(name="drafts", num_in=88, num_out=88),
            FunnelStage(
                name="gold and determinism",
                num_in=88,
                num_out=84,
                reasons={"gold fails after re-seed": 3, "too many calls": 1},
            ),
            FunnelStage(
                name="attacks on the verifier",
                num_in=84,
                num_out=71,
                reasons={"mutants survive": 9, "near-miss accepted": 2, "shortcut": 2},
            ),
            FunnelStage(name="density", num_in=71, num_out=60, reasons={"too easy": 11}),
            FunnelStage(
                name="pass@100 filter",
                num_in=60,
                num_out=49,
                reasons={"never solved": 8, "trivial": 3},
            ),
        ),
        tasks=tuple(tasks),
        pass_at=tuple(passes),
        filter_rule="Kept: 0 < pass@100 of random-valid, and pass@1 of at most 0.95.",
        filtered=(
            FilterRow(level=1, kept=9, dropped=3, reasons={"trivial": 3}),
            FilterRow(level=2, kept=12, dropped=0),
            FilterRow(level=3, kept=12, dropped=0),
            FilterRow(level=4, kept=10, dropped=1, undecided=1, reasons={"never solved": 1}),
            FilterRow(level=5, kept=6, dropped=6, reasons={"never solved": 6}),
        ),
        timings=(
            StageTime(name="synthesize", seconds=31.4),
            StageTime(name="gates", seconds=22.9),
            StageTime(name="episodes", seconds=19.0),
            StageTime(name="filter", seconds=0.42),
            StageTime(name="report", seconds=1.3),
        ),
        gates=(
            GateRow(
                gate="rebuild",
                meaning="Two builds of the database give the same bytes.",
                passed=60,
                num_trials=120,
                lowest_figure=1,
            ),
            GateRow(gate="gold", passed=60, num_trials=180, lowest_figure=1),
            GateRow(
                gate="write_prefixes",
                passed=20,
                not_applicable=40,
                num_trials=63,
                reason="the task reads only",
            ),
            GateRow(gate="near_misses", passed=60, num_trials=1431, lowest_figure=1),
            GateRow(gate="mutants", passed=58, failed=2, num_trials=3110, lowest_figure=0.9512),
            GateRow(
                gate="density_agrees",
                passed=41,
                not_run=19,
                num_trials=90210,
                lowest_figure=1.3e-4,
                reason="3/n needs more than 100,000 samples at this density",
            ),
        ),
        played=(Played(title="", episode=episode()),),
        played_task=PublicTask(
            id="trip-planning-7-l4-a",
            environment_id="trip-planning-7",
            family="general",
            prompt=PROMPT,
            limits=Limits(),
            level=4,
        ),
        notes=(
            "Two tasks ran without isolation because bubblewrap is missing here; their code was made "
            "on this machine. Install bubblewrap to isolate them.",
        ),
    )


def trained_data() -> ReportData:
    """The same with a training: its result, and a task before and after."""
    failed = episode().model_copy(update={"score": Score(value=0.0, passed=False)})
    lift = LiftRow(
        decoding="temperature 1",
        ceiling=(0.969, 0.95, 0.98),
        before=(0.612, 0.57, 0.65),
        after=(0.963, 0.94, 0.98),
        lift=(0.351, 0.31, 0.4),
    )
    part = TrainingPart(
        headline="GRPO takes a policy that was taught a bias from 0.61 to 0.96 of held-out tasks. "
        "Without the bias, the cold start alone reaches 0.97.",
        text="512 held-out tasks: variants of the questions that were trained on. The bias is planted.",
        lifts=(lift.model_copy(update={"decoding": "greedy"}), lift),
        facts={"GRPO steps": "50"},
    )
    path = TaskPath(
        title="Tasks that the policy is trained on",
        steps=("6 other tasks", "12,000 variants of them", "GRPO on the rest, 50 steps"),
        end="judged on the held-out variants",
    )
    return report_data().model_copy(
        update={
            "training": part,
            "paths": (path,),
            "funnel_hint": "draft: no task could be drawn.",
            "played": (
                Played(title="Before: the cold start", episode=failed),
                Played(title="After GRPO", episode=episode()),
            ),
        }
    )
