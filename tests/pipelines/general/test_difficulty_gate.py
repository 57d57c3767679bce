"""The gate of difficulty over pages of its own, and the targets of a generation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from desks import BIG, DESK, EXACT, FILTERS

from envgen.core.errors import TargetsMissedError
from envgen.core.types import Density, Difficulty, GateResult, GateStatus, Shortcuts
from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.authoring.page_files import read_page
from envgen.pipelines.general.difficulty.figures import Measures
from envgen.pipelines.general.domains import DOMAINS, page
from envgen.pipelines.general.draft import Draft, DraftRequest
from envgen.pipelines.general.gates.difficulty import bound_of, difficulty, measures_of
from envgen.pipelines.general.gates.trial import Hosts, Trial
from envgen.pipelines.general.generate import GenerateConfig, generate
from envgen.pipelines.general.targets import Achieved, Targets


@cache
def drafted(text: str) -> Draft:
    request = DraftRequest(domain="desk", page=read_page(text).text)
    found = (ProceduralAuthor().draft(request, seed) for seed in range(20))
    return next(draft for draft in found if isinstance(draft, Draft))


@pytest.fixture
def judged(tmp_path: Path) -> Callable[..., GateResult]:
    """The gate's result over a draft that claims to be of a level."""

    def result(draft: Draft, level: int, measures: Measures | None = None) -> GateResult:
        folder = tmp_path / str(level)
        folder.mkdir(parents=True)
        with Hosts(backend="process", trusted=True) as hosts:
            trial = Trial(replace(draft, level=level), hosts, folder, ProceduralAuthor(), seed=1)
            trial.measures = measures
            with closing(trial):
                return difficulty(trial)

    return result


def test_an_easy_page_is_rejected_from_level_4_on(judged: Callable[..., GateResult]) -> None:
    easy = drafted(DESK + FILTERS)
    measured = judged(easy, 3)
    assert (measured.status, measured.n) == (GateStatus.PASSED, 32)
    assert measured.figure is not None
    assert measured.figure > 0.9
    caught = judged(easy, 4)
    assert caught.status is GateStatus.FAILED
    assert "level 4 allows 33%" in caught.reason


def test_a_page_may_leave_its_shortcuts_unbounded(judged: Callable[..., GateResult]) -> None:
    text = DESK.replace("start = ", 'shortcuts = "any"\nstart = ', 1)
    free = judged(drafted(text + FILTERS), 4)
    assert free.status is GateStatus.NOT_APPLICABLE
    assert free.reason == "its page bounds no shortcuts"


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_domains_of_the_package_are_bounded(domain: str) -> None:
    assert page(domain).shortcuts == "bounded"


def test_a_hard_page_passes_until_the_level_promises_more(
    judged: Callable[..., GateResult],
) -> None:
    hard = drafted(BIG + EXACT)
    passed = judged(hard, 5)
    assert passed.status is GateStatus.PASSED, passed
    assert passed.n == 32
    assert judged(hard, 8).status is GateStatus.FAILED  # local search finds such a sum


BOUNDS = [
    (1, 32, 32, True),
    (3, 32, 32, True),
    (4, 10, 32, True),
    (4, 11, 0, False),
    (5, 11, 0, False),
    (6, 3, 16, True),
    (6, 4, 0, False),
    (7, 0, 17, False),
    (8, 0, 8, True),
    (8, 1, 0, False),
    (10, 0, 9, False),
]


@pytest.mark.parametrize(("level", "best", "local", "holds"), BOUNDS)
@pytest.mark.parametrize("player", ["first_row", "greedy", "first_fit", "recipe"])
def test_each_player_is_bounded(
    level: int, best: int, local: int, holds: bool, player: str, judged: Callable[..., GateResult]
) -> None:
    rates = dict.fromkeys(("first_row", "greedy", "first_fit", "recipe"), 0.0)
    curve = {"50": 0.0, "200": local / 32, "1000": 1.0}
    found = Shortcuts(n=32, local_search=curve, **{**rates, player: best / 32})
    result = judged(drafted(DESK + FILTERS), level, Measures(1, 1, 0, found))
    assert result.status is (GateStatus.PASSED if holds else GateStatus.FAILED)


def test_bounds_never_rise_with_the_level() -> None:
    bounds = [bound for level in range(1, 11) if (bound := bound_of(level))]
    assert len(bounds) == 7
    for name in ("best", "local_search"):
        rates = [getattr(bound, name) for bound in bounds]
        assert rates == sorted(rates, reverse=True)


def test_what_cannot_be_measured_is_not_hard(judged: Callable[..., GateResult]) -> None:
    nothing = Measures(1, 1, 0, None)
    assert judged(drafted(DESK + FILTERS), 2, nothing).status is GateStatus.NOT_APPLICABLE
    assert judged(drafted(DESK + FILTERS), 6, nothing).status is GateStatus.NOT_RUN


def test_levels_of_another_version_are_not_bounded(tmp_path: Path) -> None:
    draft = replace(drafted(DESK + FILTERS), level=8)
    with Hosts(backend="process", trusted=True) as hosts:
        trial = Trial(
            draft, hosts, tmp_path, ProceduralAuthor(), seed=1, incomparable="by envgen 0.2.0"
        )
        with closing(trial):
            result = difficulty(trial)
    assert (result.status, result.reason) == (GateStatus.NOT_APPLICABLE, "by envgen 0.2.0")


def test_gates_re_seeds_are_played_again(tmp_path: Path) -> None:
    """What gates re-seeded is not re-seeded twice, and gives the same figures."""
    seeds: list[int] = []

    class Author(ProceduralAuthor):
        def reseed(self, draft: Draft, seed: int) -> Draft | None:
            seeds.append(seed)
            return super().reseed(draft, seed)

        def instance(self, draft: Draft, seed: int):  # type: ignore[no-untyped-def]
            seeds.append(seed)
            return super().instance(draft, seed)

    from envgen.pipelines.general.gates.trial import trial_children

    draft, found = drafted(DESK + FILTERS), []
    with Hosts(backend="process", trusted=True) as hosts:
        for n in (0, 5):
            seeds.clear()
            (folder := tmp_path / str(n)).mkdir()
            with closing(Trial(draft, hosts, folder, Author(), seed=3)) as trial:
                trial_children(trial, n)
                found.append(measures_of(trial))
            assert len(set(seeds)) == 40
    assert found[0] == found[1]


def hardness(density: float, calls: int | None, best: float | None) -> Difficulty:
    played = best is not None and Shortcuts(
        n=32, first_row=0, greedy=best, first_fit=0, recipe=0, local_search={}
    )
    return Difficulty(
        level=5,
        density=Density(value=0, low=0, high=density, method="walk", space=1),
        calls_upper_bound=calls,
        shortcuts=played or None,
    )


def test_a_target_is_met_by_what_is_measured_alone() -> None:
    targets = Targets(density=1e-3, min_calls=4, max_shortcut=0.25)
    met = Achieved.of(hardness(1e-3, 4, 0.25))
    assert not [*targets.missed(met)]
    assert [name for name, _ in targets.missed(Achieved.of(hardness(2e-3, 3, 0.5)))] == [
        "density",
        "min_calls",
        "max_shortcut",
    ]
    unknown = Achieved.of(Difficulty(level=5))
    assert targets.distance(unknown) > targets.distance(Achieved.of(hardness(2e-3, 4, 0.5)))
    assert not [*Targets().missed(unknown)]


def test_targets_that_nothing_reaches_end_with_the_nearest_figures(tmp_path: Path) -> None:
    config = GenerateConfig(
        categories=("meeting_scheduling",),
        environments=1,
        tasks_per_environment=1,
        max_level=1,
        min_calls=50,
        agreement_episodes=0,
    )
    with pytest.raises(
        TargetsMissedError, match=r"no task reaches the targets; the nearest: .*calls 1,"
    ):
        generate(config, tmp_path / "ds", workers=1, backend="process")
    assert not [*tmp_path.iterdir()]  # other targets may be asked for at once


def test_tasks_that_reach_the_targets_are_kept_and_misses_counted(tmp_path: Path) -> None:
    config = GenerateConfig(
        categories=("trip_planning",),
        environments=2,
        tasks_per_environment=1,
        min_level=2,
        max_level=2,
        max_shortcut=0.6,
        agreement_episodes=0,
    )
    summary = generate(config, tmp_path / "ds", workers=1, backend="process")
    assert summary.tasks >= 1
    missed = summary.rejected.get("target: max_shortcut", 0)
    assert (summary.nearest is None) == (summary.tasks == summary.asked or not missed)
    assert summary.difficulty_seconds > 0
    assert summary.proving_seconds > 0
