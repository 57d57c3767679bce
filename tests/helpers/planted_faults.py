"""Faults planted in the files of a dataset, as data: which file, what to look for, what to put there.

``AUDIT`` holds the faults that an audit planted and nothing caught. ``BLIND`` holds forty more; they were
written down from ``docs/`` and the files of generated datasets, before the gate of tools and the comparison
of stored files with derived ones existed (by the author of both, who knew the older gates).
"""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from seals import seal

from envgen.store.columns import public_row, task_row, task_schema, write_parquet
from envgen.store.dataset import Dataset
from envgen.store.manifest import TABLES


class Fault(NamedTuple):
    """One change of one file."""

    name: str
    dataset: str
    """orders | meetings | trips | lookups"""
    file: str
    """The file's name; the first one found is changed."""
    pattern: str
    """A regular expression (its first match is replaced); of a database, a statement of SQL."""
    replacement: str = ""
    gate: str = ""
    """What must catch it where the texts can't be compared."""

    def plant(self, folder: Path) -> None:
        """Change the dataset in ``folder`` and mend its tables and hashes, as a forger would.

        Raises:
            AssertionError: if there was nothing to change.
        """
        path = min(folder.rglob(self.file))
        if self.file == "database.sqlite":
            with closing(sqlite3.connect(path, isolation_level=None)) as db:
                assert db.execute(self.pattern).rowcount > 0, self.name
        else:
            before = path.read_text()
            after = re.sub(self.pattern, self.replacement, before, count=1, flags=re.DOTALL)
            assert after != before, self.name
            path.write_text(after)
        mend(folder)


def forget(folder: Path, *gates: str) -> None:
    """Take gates out of the evidence, as if an older version had written the dataset in ``folder``."""
    for path in folder.rglob("evidence.json"):
        evidence = json.loads(path.read_text())
        evidence["gates"] = [one for one in evidence["gates"] if one["gate"] not in gates]
        path.write_text(json.dumps(evidence))
    mend(folder)


def mend(folder: Path) -> None:
    """Write the Parquet files anew and seal the dataset."""
    dataset = Dataset.open(seal(folder), unproven=True)
    for path in folder.glob(f"{TABLES}/*.parquet"):
        specs = [dataset.tasks[name] for name in sorted(dataset.own_task_ids)]
        rows = [
            task_row(public_row(spec, dataset.environments[spec.environment_id]))
            for spec in specs
            if spec.split == path.stem
        ]
        write_parquet(rows, path, task_schema())
    seal(folder)


_OK = r'return \{"ok": True\}'
_MUTANTS = r'\{[^{}]*\{[^{}]*\}[^{}]*"gate": "mutants"[^{}]*\},?'

AUDIT = (
    Fault("a wrong price for some items", "orders", "tools.py",
          r'"unit_price": row\[3\]', '"unit_price": row[3] + (row[0] < "O-3")', "tools"),
    Fault("an extra key marks the answer", "orders", "tools.py",
          r'"status": row\[(\d)\]', r'"status": row[\1], "due": row[\1] == "delivered"', "tools"),
    Fault("a list sorted by price", "trips", "tools.py",
          r"(FROM hotels WHERE city = :city) ORDER BY name", r"\1 ORDER BY price", "tools"),
    Fault("rows cut after the fourth", "trips", "tools.py",
          r"(FROM restaurants WHERE city = :city ORDER BY name)", r"\1 LIMIT 4", "tools"),
    Fault("busy times after noon hidden", "meetings", "tools.py",
          "FROM busy WHERE person", "FROM busy WHERE start_min < 720 AND person", "tools"),
    Fault("a write without its status check", "orders", "tools.py", "if not allowed:", "if False:", "tools"),
    Fault("a refund that ignores quantity", "orders", "tools.py",
          r"\* \(SELECT quantity FROM order_items WHERE id = :item_id\) AS", "AS", "tools"),
    Fault("ratings over 45 shown as 20", "trips", "tools.py",
          r'"rating": row\[(\d)\]', r'"rating": 20 if row[\1] > 45 else row[\1]', "tools"),
    Fault("a description of something else", "trips", "environment.json",
          "of all attractions", "of all closed attractions", "tools"),
    Fault("a wrong answer in gold", "lookups", "gold.jsonl",
          r'("answer":\{"\w+":")[^"]*', r"\1Nowhere", "stored"),
    Fault("a flipped verdict of a probe", "lookups", "probes.jsonl",
          '"expected":false', '"expected":true', "probes"),
    Fault("a falsified level", "lookups", "task.json", r'"level": \d+', '"level": 3', "recipe"),
    Fault("a falsified density", "lookups", "task.json", r'"high": [^,]*,\s*"low": [^,]*,',
          '"high": 1e-9, "low": 1e-10,', "stored"),
    Fault("a falsified number of calls", "lookups", "task.json",
          r'"gold_calls": \d+', '"gold_calls": 99', "stored"),
    Fault("falsified calls that suffice", "lookups", "task.json",
          r'"calls_upper_bound": \d+', '"calls_upper_bound": 99', "stored"),
    Fault("falsified facts", "lookups", "task.json",
          r'"facts_upper_bound": \d+', '"facts_upper_bound": 999', "stored"),
    Fault("a falsified depth", "lookups", "task.json",
          r'"branch_depth": \d+', '"branch_depth": 9', "stored"),
    Fault("falsified tokens of gold", "lookups", "task.json",
          r'"gold_tokens": \d+', '"gold_tokens": 9', "stored"),
    Fault("more tokens", "lookups", "task.json", r'"tokens": \d+', '"tokens": 99999', "stored"),
    Fault("one turn", "lookups", "task.json", r'"turns": \d+', '"turns": 1', "stored"),
    Fault("a loosened submit schema", "lookups", "task.json",
          r'"additionalProperties": false,', "", "form"),
    Fault("deleted evidence", "lookups", "evidence.json", _MUTANTS, "", "stored"),
    Fault("falsified public rules", "lookups", "task.json",
          r'("rules": .*?"text": ")[^"]*', r"\1Choose what you like.", "form"),
)  # fmt: skip
"""The sixteen of the audit's paragraph A2 (level, density and calls stand apart), and the figures that
datasets have held since format 3."""

SHORTCUTS = (
    Fault("a shortcut fails", "lookups", "task.json", r'"greedy": [\d.]+', '"greedy": 0.015625'),
    Fault("a recipe fails", "lookups", "task.json", r'"recipe": [\d.]+', '"recipe": 0.015625'),
    Fault("the first row fails", "lookups", "task.json",
          r'"first_row": [\d.]+', '"first_row": 0.015625'),
    Fault("the first fit fails", "lookups", "task.json",
          r'"first_fit": [\d.]+', '"first_fit": 0.015625'),
    Fault("local search fails", "lookups", "task.json", r'"200": [\d.]+', '"200": 0.015625'),
    Fault("more re-seeds played", "lookups", "task.json", r'"n": 32', '"n": 3200'),
    Fault("no shortcut measured", "lookups", "task.json",
          r'"shortcuts": \{[^{}]*\{[^{}]*\}[^{}]*\}', '"shortcuts": null'),
)  # fmt: skip
"""Pass rates, which are derived again where the dataset says that this envgen wrote it."""

BLIND = (
    Fault("quantities capped", "orders", "tools.py",
          r'"quantity": row\[(\d)\]', r'"quantity": min(2, row[\1])'),
    Fault("some orders hidden", "orders", "tools.py",
          r"WHERE customer_id = :customer_id ORDER BY id",
          "WHERE customer_id = :customer_id AND status != 'delivered' ORDER BY id"),
    Fault("another error's code", "orders", "tools.py",
          r'ToolError\("wrong_status"', 'ToolError("bad_argument"'),
    Fault("a write that touches other rows", "orders", "tools.py", _OK,
          "db.execute(\"UPDATE orders SET status = 'lost' WHERE id = (SELECT max(id) FROM orders)\")\n"
          '    return {"ok": True}'),
    Fault("a write that tells more", "orders", "tools.py", _OK, 'return {"ok": True, "left": 1}'),
    Fault("names in capitals", "orders", "tools.py", r'row\[0\], "tier"', 'row[0].upper(), "tier"'),
    Fault("a cent less refunded", "orders", "tools.py",
          r"SET refund = :refund_1", "SET refund = :refund_1 - 1"),
    Fault("bookings by time", "meetings", "tools.py",
          r"(FROM bookings WHERE room = :room) ORDER BY id", r"\1 ORDER BY start_min"),
    Fault("bookings that end early", "meetings", "tools.py",
          r'"end_min": row\[2\]', '"end_min": row[2] - 15'),
    Fault("attendees of later meetings, too", "meetings", "tools.py",
          r"WHERE meeting_id = :meeting_id\s+ORDER", "WHERE meeting_id >= :meeting_id ORDER"),
    Fault("keys in any case", "meetings", "tools.py",
          r"FROM rooms WHERE name = \?", "FROM rooms WHERE lower(name) = lower(?)"),
    Fault("arguments of any type", "trips", "tools.py", r'check\("city", city, str\)', "city = str(city)"),
    Fault("nothing where not_found is documented", "trips", "tools.py",
          r'raise ToolError\("not_found", f"there is no hotel \{hotel!r\}"\)', 'return ""'),
    Fault("tools that tire", "trips", "tools.py",
          r"def find\(db, query, name, value\):",
          "COUNT = [0]\n\n\ndef find(db, query, name, value):\n    COUNT[0] += 1\n"
          '    if COUNT[0] > 60:\n        raise ToolError("not_found", "come back later")'),
    Fault("facts that nobody asked for", "trips", "tools.py",
          r"return \{name: facts\[name\] for name in info_keywords\}", "return facts"),
    Fault("ratings rounded down", "trips", "tools.py",
          r'"rating": row\[(\d)\]', r'"rating": row[\1] - row[\1] % 5'),
    Fault("a write declared a read", "orders", "environment.json", '"mutates": true', '"mutates": false'),
    Fault("another source of an argument", "trips", "environment.json",
          '"x-source": "cities.name"', '"x-source": "hotels.name"'),
    Fault("a wrong unit", "trips", "environment.json",
          r"in tenths \(40 means 4\.0\)", "in tenths (40 means 40.0)"),
    Fault("an undocumented error", "orders", "environment.json",
          '"code": "wrong_status"', '"code": "wrong_state"'),
    Fault("an end that is included", "meetings", "environment.json",
          "the end is not included", "the end is included"),
    Fault("another number in the policy", "orders", "environment.json", r"\d+ days", "61 days"),
    Fault("touching times refused", "meetings", "verifier.py", r"<= b\.start_min", "< b.start_min"),
    Fault("one seat more", "meetings", "verifier.py", r">= \(SELECT COUNT", "> (SELECT COUNT"),
    Fault("a bound moved", "trips", "verifier.py", r">= (\d)", r"> \1"),
    Fault("any outcome", "orders", "verifier.py", r'broken\.append\("goal"\)', "pass"),
    Fault("an unstated rule", "trips", "verifier.py", r"return broken\n",
          'return broken or (["city"] if answer[0]["city"] > "M" else [])\n'),
    Fault("no form asked for", "meetings", "verifier.py", r'return \["layout"\]', "return []"),
    Fault("a change forgiven", "orders", "verifier.py", "if changed:", "if len(changed) > 1:"),
    Fault("another grid in the prompt", "meetings", "prompt.md", "every 30 minutes", "every 15 minutes"),
    Fault("a rule turned in the prompt", "trips", "prompt.md", r"less than (\d+) CNY", r"up to \1 CNY"),
    Fault("another operator in the lineage", "trips", "task.json",
          r'"operator": "\w+"', '"operator": "by_hand"'),
    Fault("a larger space", "meetings", "task.json", r'"space": [0-9.e+]+', '"space": 1000000.0'),
    Fault("a longer walk", "orders", "task.json", r'"x-walk": \d+', '"x-walk": 99'),
    Fault("few tokens", "meetings", "task.json", r'"tokens": \d+', '"tokens": 64'),
    Fault("a result in gold's log", "trips", "gold.jsonl", r'"result":\["', '"result":["Nowhere","'),
    Fault("a probe less", "meetings", "probes.jsonl", r'\{[^\n]*"near_miss"\}\n', ""),
    Fault("more mutants than were made", "orders", "evidence.json",
          r'("gate": "mutants",\s+"inherited_from": null,\s+"n": )\d+', r"\g<1>9999"),
    Fault("somebody else is busy", "meetings", "database.sqlite",
          "UPDATE busy SET start_min = start_min - 30 WHERE id = (SELECT min(id) FROM busy)"),
    Fault("a customer with more credit", "orders", "database.sqlite",
          "UPDATE customers SET credit = credit + 5 WHERE id = (SELECT max(id) FROM customers)"),
)  # fmt: skip

SHOWN = "shown"
"""By evaluation nothing can judge it, so it is shown: words, and figures of another version."""
AUDIT_2 = (
    Fault("an error that names a row", "lookups", "tools.py",
          r'f"there is no \{name\} \{value!r\}"',
          'f"no {name}: try " + db.execute("SELECT name FROM attractions ORDER BY price").fetchone()[0]',
          "tools"),
    Fault("rows cut where the longest list ends", "lookups", "tools.py",
          r"(FROM attractions WHERE city = :city ORDER BY name)", r"\1 LIMIT 5", "tools"),
    Fault("rows cut after ten", "lookups", "tools.py",
          r"(FROM attractions WHERE city = :city ORDER BY name)", r"\1 LIMIT 10", "tools"),
    Fault("false words of a tool", "lookups", "environment.json",
          r"The names of all attractions in a city\.",
          "The names of all attractions in a city. The first is the cheapest.", SHOWN),
    Fault("false words of an argument", "lookups", "environment.json",
          r'"description": "City\."', '"description": "City, in capitals."', SHOWN),
    Fault("false words of an error", "lookups", "environment.json",
          "no row has the given key", "try again later", SHOWN),
    Fault("a rule that the IR lacks", "lookups", "prompt.md",
          r"\n\n(?=Good to know:)", "\n\nIts name has five letters.\n\n", SHOWN),
    Fault("another greeting", "lookups", "prompt.md", r"^(?=\w)", "Ignore the tools. ", SHOWN),
    Fault("the sense turned in the prompt", "lookups", "prompt.md", "highest", "lowest", "stated"),
    Fault("all that tie are right", "lookups", "verifier.py",
          r", x\.name(?=\s*LIMIT 1)", ", x.name = :name DESC", "evaluation"),
    Fault("a density of anything", "lookups", "task.json",
          r'"high": 0[.\d]+,\s*"low": 0[.\d]+,([^{}]*)"value": 0\.\d+',
          r'"high": 1.0,\n"low": 0.0,\1"value": 0.9', "stored"),
    Fault("no probe but gold", "lookups", "probes.jsonl", r'\{[^\n]*"near_miss"\}\n', "", "stored"),
    Fault("fewer facts", "lookups", "task.json",
          r'"facts_upper_bound": \d+', '"facts_upper_bound": 2', "stored"),
    Fault("another level", "lookups", "task.json", r'"level": 2', '"level": 7', "recipe"),
    Fault("a turned licence", "lookups", "environment.json",
          r'"licence": "[^"]*"', '"licence": "MIT"', "stored"),
    Fault("another source", "lookups", "environment.json", "GeoNames", "NameGeos", "stored"),
    Fault("a card of its own", "lookups", "README.md", r"# general", "# The best dataset", "card"),
    Fault("a funnel without rejections", "lookups", "dataset.json",
          r'("rejected": \{\},\s*"tasks": )1', r"\g<1>0", "card"),
    Fault("trained on what it is tested on", "lookups", "task.json",
          '"split": "train"', '"split": "test"', "card"),
    Fault("another persona's policy", "orders", "environment.json",
          r"an item can be refunded", "an item could once be refunded", SHOWN),
    Fault("rows hidden once something was written", "orders", "tools.py",
          r"WHERE customer_id = :customer_id ORDER BY id",
          "WHERE customer_id = :customer_id AND (SELECT max(refund) FROM order_items) = 0 ORDER BY id",
          "tools"),
    Fault("a cent that is forgiven", "orders", "verifier.py",
          r"(SELECT refund FROM final\.order_items WHERE id = i\.id\))\s*=", r"\1 >=", "evaluation"),
    Fault("an item that nobody asked about", "orders", "verifier.py",
          r"AND i\.status = 'delivered'(\s*AND \(SELECT status FROM final)", r"\1", "mutants"),
    Fault("a wider form", "lookups", "task.json", r'"additionalProperties": false,', "", "form"),
)  # fmt: skip
"""24 fresh ones, of the kinds that a second audit planted in other datasets and found to be missed."""
