"""What a proven task costs on pages that models wrote, against pages by hand, at the same level.

    python -P benchmarks/written_pages.py [--tasks 3] [--level 1 ...] [--page my.toml]

Processor seconds of drafting and of all gates, failed drafts included, for each task that is kept; one
process, no worker. Target: no more than 1.5 times the mean of the pages by hand, over all levels.
"""

from __future__ import annotations

import argparse
import resource
from statistics import fmean, median

from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.authoring.page import Domain
from envgen.pipelines.general.authoring.page_files import is_package_page
from envgen.pipelines.general.domains import DOMAINS, WRITTEN, page, page_file
from envgen.pipelines.general.draft import Draft, DraftRequest
from envgen.pipelines.general.gates.prove import prove
from envgen.pipelines.general.gates.trial import Hosts

DRAFTS = 4
"""For each task that is wanted, at most."""
TARGET = 1.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=3)
    parser.add_argument("--level", type=int, action="append", default=[])
    parser.add_argument("--page", action="append", default=[])
    arguments = parser.parse_args()
    levels = arguments.level or [1, 2, 3, 4, 5]
    written = [page_file(path) for path in arguments.page] or [page(name) for name in WRITTEN]
    print("processor seconds a kept task\n")
    print("| page | " + " | ".join(f"level {level}" for level in levels) + " | mean |")
    print("|---" * (len(levels) + 2) + "|")
    with Hosts(trusted=True) as hosts:
        by_hand = [measured(hosts, page(name), levels, arguments.tasks) for name in DOMAINS]
        by_models = [measured(hosts, one, levels, arguments.tasks) for one in written]
    hand = fmean(map(fmean, by_hand))
    ratios = sorted(fmean(one) / hand for one in by_models)
    print(
        f"\nagainst {hand:.1f} s by hand: median {median(ratios):.2f}x, "
        f"from {ratios[0]:.2f}x to {ratios[-1]:.2f}x; target <= {TARGET:g}x"
    )


def measured(hosts: Hosts, domain: Domain, levels: list[int], tasks: int) -> list[float]:
    """Processor seconds a kept task, by level; printed."""
    author, found = ProceduralAuthor(), []
    text = "" if is_package_page(domain) else domain.text
    for level in levels:
        kept, started = 0, spent()
        for seed in range(DRAFTS * tasks):
            draft = author.draft(DraftRequest(domain=domain.id, page=text, level=level), seed)
            kept += isinstance(draft, Draft) and prove(draft, hosts, author=author).passed
            if kept == tasks:
                break
        found.append((spent() - started) / kept if kept else float("inf"))
    cells = " | ".join(f"{seconds:.2f}" for seconds in [*found, fmean(found)])
    print(f"| {domain.id} | {cells} |", flush=True)
    return found


def spent() -> float:
    """Processor seconds of this process and of its children that have ended."""
    times = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in times)


if __name__ == "__main__":
    main()
