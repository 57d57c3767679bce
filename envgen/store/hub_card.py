"""The data card's YAML front matter, which the Hugging Face Hub and ``datasets.load_dataset`` read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from envgen.core.families import find_family
from envgen.core.types import EnvironmentSpec, TaskSpec
from envgen.store.manifest import TABLES, Manifest

_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (10**6, "100K<n<1M"))
_LARGEST = "1M<n<10M"
_SPLITS = ("train", "validation", "test")
_KNOWN = frozenset(
    """afl-3.0 agpl-3.0 apache-2.0 artistic-2.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear bsl-1.0 cc
    cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nc-nd-3.0
    cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0 cc-by-sa-4.0
    cc0-1.0 ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 gfdl gpl gpl-2.0 gpl-3.0 isc lgpl lgpl-2.1
    lgpl-3.0 lppl-1.3c mit mpl-2.0 ms-pl ncsa odbl odc-by ofl-1.1 osl-3.0 pddl postgresql unknown unlicense
    wtfpl zlib""".split()
)
"""Licences that the Hub knows; others are ``other``."""
_SPELLED = {"odbl-1.0": "odbl", "pddl-1.0": "pddl", "odc-by-1.0": "odc-by"}


def front_matter(
    manifest: Manifest, environments: Sequence[EnvironmentSpec], tasks: Sequence[TaskSpec]
) -> str:
    """The YAML block, with its fences. Strings are written as JSON, which YAML includes."""
    families = {task.family for task in tasks}
    tags = {"envgen", *(tag for family in families for tag in find_family(family).tags)}
    licences = hub_licences(environment.licence for environment in environments)
    lines = ["---", f"pretty_name: {json.dumps(manifest.name)}"]
    lines += _listed("license", licences)
    if "other" in licences:
        named = ", ".join(sorted({one.licence for one in environments}))
        lines.append(f"license_name: {json.dumps(named)}")
    lines += _listed("language", sorted({one.language for one in environments}))
    lines += _listed("task_categories", ["reinforcement-learning", "text-generation"])
    lines += _listed("size_categories", [_size(len(tasks))])
    lines += _listed("tags", sorted(tags))
    splits = [split for split in _SPLITS if any(task.split == split for task in tasks)]
    if splits:
        lines += ["configs:", "- config_name: default", "  data_files:"]
        for split in splits:
            lines += [f"  - split: {split}", f"    path: {TABLES}/{split}.parquet"]
    return "\n".join([*lines, "---"])


def hub_licences(licences: Iterable[str]) -> list[str]:
    """The Hub's names of licences, sorted."""
    found = set()
    for licence in licences:
        plain = licence.lower().removesuffix("-only").removesuffix("-or-later")
        plain = _SPELLED.get(plain, plain)
        found.add(plain if plain in _KNOWN else "other")
    return sorted(found) or ["unknown"]


def _listed(name: str, values: Sequence[str]) -> list[str]:
    if not values:
        return []
    return [f"{name}:", *(f"- {json.dumps(value)}" for value in values)]


def _size(count: int) -> str:
    return next((name for limit, name in _SIZES if count < limit), _LARGEST)
