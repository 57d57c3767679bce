"""What dying workers held is tried again: with others, then alone, then given up."""

from __future__ import annotations

from envgen.rollout.work import MAX_WORKER_DEATHS, Chunk, Work


def test_episodes_of_a_task_go_together() -> None:
    work = Work([("a", 0), ("b", 0), ("a", 1), ("a", 2)], size=2)
    assert list(work.round()) == [Chunk("a", (0, 1)), Chunk("a", (2,)), Chunk("b", (0,))]
    assert not work


def test_each_episode_of_a_dead_worker_is_tried_apart_then_alone_then_given_up() -> None:
    work = Work([("a", 0), ("a", 1), ("b", 0)], size=2)
    first = work.round()
    chunk = next(first)
    assert work.died(chunk) == []
    assert list(first) == [Chunk("b", (0,)), Chunk("a", (0,)), Chunk("a", (1,))]
    assert work.died(Chunk("a", (0,))) == []
    assert work.died(Chunk("a", (1,))) == []
    assert list(work.round()) == [Chunk("a", (0,))]
    assert list(work.round()) == [Chunk("a", (1,))]
    assert not work
    assert work.died(Chunk("a", (1,))) == [("a", 1)]
    assert not work
    assert MAX_WORKER_DEATHS == 3


def test_nothing_else_runs_beside_an_episode_that_is_tried_alone() -> None:
    work = Work([("a", 0), ("a", 1)], size=1)
    for _ in range(MAX_WORKER_DEATHS - 1):
        for chunk in list(work.round()):
            work.died(chunk)
    alone = work.round()
    assert next(alone) == Chunk("a", (0,))
    assert list(alone) == []
    assert work
