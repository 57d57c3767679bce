from __future__ import annotations

import re
from dataclasses import replace

import pytest
from ladders import ladder

from envgen.core.errors import PipelineError
from envgen.core.ir import Reach
from envgen.pipelines.general.authoring.tasks import Hardened
from envgen.pipelines.general.domains import DOMAINS, load_tasks
from envgen.pipelines.general.semantics.rewrite import hidden
from envgen.pipelines.general.words.lexicon import Phrase
from envgen.pipelines.general.words.prompt import parse, prompt


def steps(domain: str) -> tuple[Hardened, ...]:
    return ladder(domain, 11)


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_prompt_says_its_problem_and_nothing_else(domain: str) -> None:
    lexicon = load_tasks(domain).lexicon
    for problem, _ in steps(domain):
        rendered = prompt(problem, lexicon)
        read = parse(rendered.text, problem.relations, lexicon, policy_text=rendered.policy_text)
        left = hidden(problem)
        assert read.params == {k: v for k, v in problem.params.items() if k not in left}
        assert read.slots == problem.slots
        assert {c.id: c for c in read.clauses} == {c.id: c for c in problem.clauses}
        assert read.goal == problem.goal


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_rule_has_a_span(domain: str) -> None:
    lexicon = load_tasks(domain).lexicon
    for problem, _ in steps(domain):
        rendered = prompt(problem, lexicon)
        wanted = {clause.id for clause in problem.clauses if clause.source == "prompt"} | {"layout"}
        if isinstance(problem.goal, Reach):
            wanted |= {effect.id for effect in problem.goal.effects} | {"write_set"}
        assert wanted <= set(rendered.spans)
        policy = {clause.id for clause in problem.clauses if clause.source == "policy"}
        assert policy <= set(rendered.policy_spans)
        for spans, text in (
            (rendered.spans, rendered.text),
            (rendered.policy_spans, rendered.policy_text),
        ):
            for places in spans.values():
                for start, end in places:
                    assert text[start:end].strip() == text[start:end] != ""


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_agent_is_told_how_to_submit(domain: str) -> None:
    for problem, _ in steps(domain):
        text = prompt(problem, load_tasks(domain).lexicon).text
        assert "`submit_result`" in text
        assert "`answer_text`" in text
        assert text.count("```") == 2


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_changed_number_is_never_read_as_the_same_problem(domain: str) -> None:
    lexicon = load_tasks(domain).lexicon
    for problem, _ in steps(domain)[::3]:
        rendered = prompt(problem, lexicon)
        for match in re.finditer(r"\d+", rendered.text):
            number = str(int(match[0]) + 1)
            changed = rendered.text[: match.start()] + number + rendered.text[match.end() :]
            try:
                read = parse(changed, problem.relations, lexicon, policy_text=rendered.policy_text)
            except PipelineError:
                continue
            same = (read.params, read.fields, read.slots, read.clauses, read.goal)
            ours = (problem.params, problem.fields, problem.slots, problem.clauses, problem.goal)
            assert same != ours, match


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_missing_line_is_never_read_as_the_same_problem(domain: str) -> None:
    lexicon = load_tasks(domain).lexicon
    problem, _ = steps(domain)[-1]
    rendered = prompt(problem, lexicon)
    lines = rendered.text.split("\n")
    for i, line in enumerate(lines):
        if not line:
            continue
        changed = "\n".join(lines[:i] + lines[i + 1 :])
        try:
            read = parse(changed, problem.relations, lexicon, policy_text=rendered.policy_text)
        except PipelineError:
            continue
        assert (read.clauses, read.goal) != (problem.clauses, problem.goal), line


def test_a_rule_that_differs_from_its_sentence_is_refused() -> None:
    problem, _ = steps("trip")[-1]
    lexicon = load_tasks("trip").lexicon
    key = problem.clauses[0].text_key

    def other(fields: object) -> object:
        return problem.clauses[1]

    phrases = {**lexicon.phrases, key: Phrase(lexicon.phrases[key].template, other)}  # type: ignore[arg-type]  # sabotage
    with pytest.raises(PipelineError, match="mean something else"):
        prompt(problem, replace(lexicon, phrases=phrases))


def test_a_parameter_that_no_sentence_states_is_refused() -> None:
    problem, _ = steps("trip")[-1]
    hidden = problem.model_copy(update={"params": {**problem.params, "secret": 1}})
    with pytest.raises(PipelineError, match="other params"):
        prompt(hidden, load_tasks("trip").lexicon)


def test_a_sentence_without_its_parameter_is_refused() -> None:
    problem, _ = steps("trip")[-1]
    params = dict(problem.params)
    params.pop(sorted(set(params) - hidden(problem))[0])
    with pytest.raises(PipelineError, match="missing"):
        prompt(problem.model_copy(update={"params": params}), load_tasks("trip").lexicon)


def test_a_unit_without_a_sentence_is_refused() -> None:
    problem, _ = steps("trip")[-1]
    lexicon = replace(load_tasks("trip").lexicon, units={})
    with pytest.raises(PipelineError, match="unit"):
        prompt(problem, lexicon)
