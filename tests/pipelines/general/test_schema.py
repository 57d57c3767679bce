from __future__ import annotations

import random

import pytest
from generated import answers
from ladders import ladder
from pydantic import JsonValue
from sample_problems import SAMPLES

from envgen.core.ir import Reach
from envgen.core.schema import compile_schema
from envgen.pipelines.general.domains import DOMAINS, load_tasks
from envgen.pipelines.general.semantics.evaluate import evaluate
from envgen.pipelines.general.words.prompt import prompt
from envgen.pipelines.general.words.schema import public_rules, submit_schema


@pytest.mark.parametrize("name", SAMPLES)
def test_what_fits_the_layout_fits_the_schema(name: str) -> None:
    sample = SAMPLES[name]
    schema = compile_schema(submit_schema(sample.problem, sample.tables))
    refused = 0
    for answer in answers(sample.problem, sample.tables, random.Random(name), 400):
        fits = schema.fault(answer) is None
        if evaluate(sample.problem, sample.tables, answer)["layout"]:
            assert fits
        refused += not fits
    assert refused > 20


def test_leaves_name_their_source_and_what_they_depend_on() -> None:
    sample = SAMPLES["a_trip"]
    schema = submit_schema(sample.problem, sample.tables)
    day: JsonValue = schema["prefixItems"][1]["properties"]  # type: ignore[index,call-overload]  # our own schema
    assert isinstance(day, dict)
    hotel = {"type": "string", "x-source": "hotels.name", "x-where": {"city": "/1/city"}}
    assert day["hotel"] == hotel
    assert day["day"] == {"const": 2}


def test_intervals_and_workflows_carry_their_hints() -> None:
    meetings = SAMPLES["e_meetings"]
    schema = submit_schema(meetings.problem, meetings.tables)
    time: JsonValue = schema["properties"]["review"]["properties"]["time"]  # type: ignore[index,call-overload]  # our own schema
    assert isinstance(time, dict)
    assert time["x-intervals"] == {"low": 540, "high": 960, "step": 30, "length": 60}
    refund = SAMPLES["c_refund"]
    assert submit_schema(refund.problem, refund.tables)["x-walk"] == 4


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_rule_of_a_prompt_is_public(domain: str) -> None:
    lexicon = load_tasks(domain).lexicon
    for problem, _ in ladder(domain, 11):
        rendered = prompt(problem, lexicon)
        texts = {rule.text for rule in public_rules(problem, rendered)}
        spans = [(rendered.text, s) for n, s in rendered.spans.items() if n != "layout"]
        spans += [(rendered.policy_text, s) for s in rendered.policy_spans.values()]
        for clause in problem.clauses:
            at = rendered.spans.get(clause.id) or rendered.policy_spans[clause.id]
            source = rendered.text if clause.id in rendered.spans else rendered.policy_text
            assert " ".join(source[a:b] for a, b in at) in texts
        if isinstance(problem.goal, Reach):
            assert any("Change nothing" in text or "change nothing" in text for text in texts)


def test_comparisons_and_differences_are_in_parts() -> None:
    problem, _ = ladder("trip", 11)[-1]
    rules = public_rules(problem, prompt(problem, load_tasks("trip").lexicon))
    different = [rule for rule in rules if rule.kind == "different"]
    assert ("/0/city", "/1/city", "/2/city") in [rule.slots for rule in different]
    orders, _ = ladder("meetings", 11)[-1]
    assert public_rules(orders, prompt(orders, load_tasks("meetings").lexicon))
