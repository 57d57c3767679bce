"""The dataset in the wheel is what its recipe makes."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from envgen.core.types import GateStatus, SourceKind, published
from envgen.environments.hosts import PACKAGE_DATA
from envgen.integrations.sessions import Episodes
from envgen.pipelines.general.generate import TRIP_PLANNING, generate
from envgen.pipelines.tables import tables
from envgen.sandboxes.solution import parameter_order
from envgen.store.dataset import Dataset
from envgen.store.manifest import MANIFEST
from envgen.store.subset import export

PAPER_TOOLS = {
    "get_all_attractions_by_city": ["city"],
    "get_all_cities": [],
    "get_all_hotels_by_city": ["city"],
    "get_all_restaurants_by_city": ["city"],
    "get_city_by_attraction": ["attraction"],
    "get_city_by_hotel": ["hotel"],
    "get_city_by_restaurant": ["restaurant"],
    "get_city_transport": ["city"],
    "get_infos_by_attraction": ["info_keywords", "attraction"],
    "get_infos_by_city": ["info_keywords", "city"],
    "get_infos_by_hotel": ["info_keywords", "hotel"],
    "get_infos_by_restaurant": ["info_keywords", "restaurant"],
    "get_inter_city_transport": ["from_city", "to_city"],
    "get_weather_by_city_date": ["city", "date"],
}
"""The paper's tools but ``submit_result``, which the environment adds."""


@pytest.fixture(scope="module")
def shipped() -> Dataset:
    return Dataset.open(PACKAGE_DATA / "trip_planning")


def contents(folder: Path) -> dict[str, object]:
    """Every file's bytes; of Parquet, which names the version of its writer, the columns and rows."""
    found: dict[str, object] = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            found[name] = (str(table.schema), table.to_pylist())
        elif name == MANIFEST:
            manifest = json.loads(path.read_text())
            manifest["members"] = {
                member: "" if member.endswith(".parquet") else digest
                for member, digest in manifest["members"].items()
            }
            found[name] = manifest
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_rebuilds_byte_for_byte(tmp_path: Path, shipped: Dataset) -> None:
    generate(TRIP_PLANNING, tmp_path / "again", workers=1)
    assert contents(tmp_path / "again") == contents(shipped.path)


def test_readers_of_the_hub_find_its_task(shipped: Dataset) -> None:
    """Front matter and Parquet, as every dataset has them: the wheel's was made before there were any."""
    assert (shipped.path / "README.md").read_text().startswith("---\npretty_name: ")
    assert tables(shipped).status is GateStatus.PASSED
    assert tables(shipped).n == 1


def test_what_is_published_has_no_keyword_that_servers_refuse(
    shipped: Dataset, tmp_path: Path
) -> None:
    (task,) = shipped.own_task_ids
    environment = shipped.environments[shipped.facts(task).environment_id]
    assert '"x-source"' in environment.model_dump_json()
    opening = Episodes(shipped).session().reset(task)
    export(shipped, tmp_path / "tasks.jsonl", "jsonl")
    told = (tmp_path / "tasks.jsonl").read_text("utf-8") + json.dumps(opening.tools)
    assert '"x-' not in told
    assert published({"properties": {"x-ray": {"x-source": "a.b", "enum": ["x-y"]}}}) == {
        "properties": {"x-ray": {"enum": ["x-y"]}}
    }


def test_its_hash_is_trusted(shipped: Dataset) -> None:
    assert shipped.source is SourceKind.PACKAGE
    assert shipped.manifest.seed == TRIP_PLANNING.seed


def test_it_has_the_papers_tools(shipped: Dataset) -> None:
    (environment,) = shipped.environments.values()
    tools = {tool.name: parameter_order(tool) for tool in environment.tools}
    assert tools == PAPER_TOOLS
    assert environment.submit_tool == "submit_result"


def test_its_density_is_at_most_one_in_a_thousand(shipped: Dataset) -> None:
    (task,) = (shipped.tasks[i] for i in shipped.own_task_ids)
    assert task.difficulty.density is not None
    assert 0 < task.difficulty.density.high <= 1e-3
