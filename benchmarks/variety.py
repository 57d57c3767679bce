"""How much the tasks of each domain differ: structures, sentences, ways to say a rule.

    python -P benchmarks/variety.py [--drafts 400] [--page my.toml]

Structures are drafted from level 1 to the highest without rows and without proof: seconds in all.
"""

from __future__ import annotations

import argparse
import time

from envgen.pipelines.general.authoring.tasks import tasks_from
from envgen.pipelines.general.domains import DOMAINS, page, page_file
from envgen.pipelines.general.variety import DRAFTS, PHRASINGS, SENTENCES, STRUCTURES, variety


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--drafts", type=int, default=DRAFTS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", action="append", default=[])
    arguments = parser.parse_args()
    pages = [page_file(path) for path in arguments.page] or [page(name) for name in DOMAINS]
    head = ("domain", "structures", "sentences", "phrasings", "seconds")
    print(f"{arguments.drafts} drafts from level 1 to the highest, seed {arguments.seed}\n")
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for one in pages:
        started = time.monotonic()
        found = variety(tasks_from(one.text), arguments.drafts, arguments.seed)
        seconds = time.monotonic() - started
        figures = (found.structures, found.sentences, found.phrasings, f"{seconds:.1f}")
        print("| " + " | ".join(map(str, (found.domain, *figures))) + " |")
    print(f"| target | >= {STRUCTURES} | >= {SENTENCES} | >= {PHRASINGS} | |")


if __name__ == "__main__":
    main()
