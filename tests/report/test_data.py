from __future__ import annotations

from store_samples import task

from envgen.report.data import gate_rows, task_points


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
