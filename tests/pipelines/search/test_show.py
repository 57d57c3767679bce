"""A search question in readable form: its clues in its own words, and no refused answer that is right."""

from __future__ import annotations

import json
from pathlib import Path

from films import films_corpus

from envgen.pipelines.search.config import SearchConfig
from envgen.pipelines.search.generate import generate_search
from envgen.pipelines.search.show import readable
from envgen.store.dataset import Dataset


def test_clues_stand_in_the_question_and_refused_answers_are_not_gold(tmp_path: Path) -> None:
    corpus = films_corpus(tmp_path / "films")
    config = SearchConfig(corpus=corpus.path, questions=6, depth="1", breadth="2", shapes="one")
    generate_search(config, tmp_path / "qa", workers=1)
    dataset = Dataset.open(tmp_path / "qa")
    for task_id in dataset.own_task_ids:
        files = dataset.task_files(task_id)
        assert files.gold is not None
        told = readable(dataset, task_id)
        (document,) = told["Evidence documents"]
        page = json.loads(files.solution)["evidence"][0]
        assert document.startswith(f"{page}  ")
        assert len(told["Clues"]) == 2
        refused = told["Near answers, refused"]
        assert refused
        assert str(files.gold.answer) not in refused
