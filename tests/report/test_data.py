from __future__ import annotations

from store_samples import task

from envgen.report.data import filter_rows, gate_rows, task_points


def test_points_come_from_specs() -> None:
    point = task_points([task().spec])[0]
    assert (point.level, point.density, point.kill_rate) == (1, 0.5, 0.98)
    assert (point.gold_calls, point.distinct_tools) == (1, 1)


def test_gates_are_counted_over_tasks() -> None:
    rows = {row.gate: row for row in gate_rows([task("a").spec, task("b").spec])}
    assert list(rows) == ["gold", "mutants", "prefixes"]
    assert (rows["gold"].passed, rows["gold"].num_trials) == (2, 6)
    assert rows["mutants"].lowest_figure == 0.98
    assert (rows["prefixes"].not_applicable, rows["prefixes"].reason) == (2, "reads only")


def test_filter_outcomes_are_counted_per_level() -> None:
    levels = {"a": 1, "b": 1, "c": 2, "d": 2}
    outcomes = {"a": "kept", "b": "never solved", "c": "undecided", "d": "kept"}
    first, second = filter_rows(levels, outcomes)
    assert (first.kept, first.dropped, first.reasons) == (1, 1, {"never solved": 1})
    assert (second.kept, second.dropped, second.undecided) == (1, 0, 1)
