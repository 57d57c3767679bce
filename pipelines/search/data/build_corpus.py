"""Make ``corpus.jsonl.xz``, the packaged corpus, of local copies of its sources (``NOTICE.md`` names them).

``python -m envgen.pipelines.search.data.build_corpus --tate DIR --factbook DIR --poets FILE --jargon DIR
--out FILE``: the same copies give the same bytes. Rows of tables become sentences (``build.toml``) whose
spans are recorded while they are written; texts in prose keep their words (``build_prose.py``).
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from math import isqrt
from pathlib import Path
from typing import NamedTuple, TypeVar

from envgen.pipelines.search.data.build_prose import (
    Mark,
    Row,
    countries,
    country_titles,
    document,
    jargon,
    plain,
    poets,
)

WORKS, TURNER, TURNER_WORKS = 8000, 558, 150
TATE_COMMIT = "a51d8afc988ed083557e2950f4d0b644e7719f4a"
SUBJECT_WORKS, SUBJECTS_A_WORK = range(15, 2001), 8
NOT_DEPICTED = ("abstraction", "emotions, concepts and ideas")
NO_TITLE = re.compile(r"\W*(untitled|title not known|no title|not titled|blank|verso)\b", re.I)
THE = ("Netherlands", "United Kingdom", "United States")
NO_CITY = ("Down", "Powys", "Midlothian", "Argyll and Bute")


class Piece(NamedTuple):
    """What stands in a template's slot, with its facts."""

    text: str
    marks: tuple[Mark, ...] = ()


T = TypeVar("T")
Slots = Mapping[str, Piece | None]


def fact(attribute: str, value: str | int, ref: str | None = None) -> Piece:
    """A slot that says one fact and nothing else."""
    shown = str(value)
    return Piece(shown, (Mark(0, len(shown), attribute, value, ref),))


def listing(attribute: str, values: Sequence[str]) -> Piece | None:
    """A slot that names several values of one attribute."""
    text, marks = "", []
    for i, value in enumerate(values):
        text += "" if i == 0 else " and " if i == len(values) - 1 else ", "
        marks.append(Mark(len(text), len(text) + len(value), attribute, value))
        text += value
    return Piece(text, tuple(marks)) if values else None


def pick(options: Sequence[T], *key: str) -> T:
    """One of the options, the same for the same key."""
    return options[int(sha256(":".join(key).encode()).hexdigest()[:8], 16) % len(options)]


class Writer:
    """Sentences about one row, in an order of its own."""

    def __init__(self, words: Row, key: str, name: str) -> None:
        self.words, self.key, self.name = words, key, name
        self.text, self.marks = "", list[Mark]()

    def write(self, kinds: Mapping[str, Slots]) -> tuple[str, list[Mark]]:
        """A sentence of each kind that has a slot filled, or none to fill."""
        said = [kind for kind, slots in kinds.items() if not slots or any(slots.values())]
        order = sorted(said, key=lambda kind: sha256(f"{self.key}/{kind}".encode()).digest())
        for i, kind in enumerate(order):
            it = pick([self.name, *self.words["it"]], self.key, kind, "it") if i else self.name
            self._sentence(pick(self.words[kind], self.key, kind), {**kinds[kind], "it": Piece(it)})
        return self.text, self.marks

    def _sentence(self, template: str, slots: Slots) -> None:
        def kept(found: re.Match[str]) -> str:
            names = re.findall(r"\{(\w+)\}", found[1])
            return found[1] if all(slots.get(name) for name in names) else ""

        template = re.sub(r"\[([^]]*)\]", kept, template).strip()
        if self.text:
            self.text += " "
        for part in re.split(r"(\{\w+\})", template):
            piece = slots[part[1:-1]] if part.startswith("{") else Piece(part)
            if self.text.endswith(".") and part == ".":
                continue
            assert piece is not None, template
            begins = not self.text or self.text.endswith(". ")
            text = (
                piece.text[:1].upper() + piece.text[1:]
                if begins and not piece.marks
                else piece.text
            )
            for mark in piece.marks:
                at = len(self.text)
                self.marks.append(mark._replace(start=mark.start + at, end=mark.end + at))
            self.text += text


def artists(folder: Path, words: Row, countries: Mapping[str, str]) -> Iterator[Row]:
    """All artists of the Tate."""
    rows: dict[int, Row] = {}
    for path in sorted(folder.glob("artists/**/*.json")):
        row = json.loads(path.read_text("utf-8"))
        rows.setdefault(row["id"], row)
    names = Counter(plain(row["fc"]) for row in rows.values())
    for number, row in sorted(rows.items()):
        key, name = f"tate-artist-{number}", plain(row["fc"])
        title = name if names[name] == 1 else f"{name} ({plain(row['date']) or number})"
        born, died = _life(row)
        gender = {"Male": "male", "Female": "female"}.get(row["gender"])
        movements = sorted({plain(one["name"]) for one in row["movements"]})
        birth = {"birth_place": _place(row, "birth", words, countries), "birth_year": born}
        death = {"death_place": _place(row, "death", words, countries), "death_year": died}
        kinds: dict[str, Slots] = {
            "listed": {},
            "gender": {"gender": fact("gender", gender) if gender else None},
            "birth": birth,
            "death": death,
            "movement": {"movement": listing("movement", movements)},
        }
        text, marks = Writer(words["artist"], key, title).write(kinds)
        url = re.sub("^http:", "https:", row["url"])
        yield document("artist", key, title, text, marks, source="tate", url=url)


def _life(row: Row) -> tuple[Piece | None, Piece | None]:
    """Years of birth and death, where the record is sure of them and its fields agree."""
    dates = re.fullmatch(
        r"(?:born |(?=.*\u2013))(c\.|\?)?(\d{4})?(?:\u2013(c\.|\?)?(\d{4}))?", row["date"] or ""
    )
    if not dates:
        return None, None
    school = re.search(r"\bSchool\b", row["fc"])  # its years are those of its works: no facts
    born, died = (
        (Piece(year) if school else fact(f"{event}_year", int(year)))
        if year and not doubt and _year(row, event) == int(year)
        else None
        for event, doubt, year in (("birth", dates[1], dates[2]), ("death", dates[3], dates[4]))
    )
    return born, died


def _year(row: Row, event: str) -> int | None:
    found = (row.get(event) or {}).get("time", {}).get("startYear")
    return int(found) if found is not None else None


def _place(row: Row, event: str, words: Row, countries: Mapping[str, str]) -> Piece | None:
    place = (row.get(event) or {}).get("place")
    if not place or not plain(place["name"]):
        return None
    parts, kind = plain(place["name"]).split(", "), place.get("placeType")
    if parts[0] == "Tunis" and len(parts) == 1:
        return None
    last = words["countries"].get(parts[-1], parts[-1])
    ref = countries.get(last) if len(parts) > 1 or kind in ("nation", "country", "island") else None
    local, country = (parts[:-1], last) if ref else (parts, None)
    text = ", ".join(local)
    marks = []
    cities = ("inhabited_place", "city", "unitary_authority")
    if len(local) == 1 and kind in cities and local[0] not in NO_CITY and (ref or len(parts) == 1):
        marks.append(Mark(0, len(text), f"{event}_city", text))
    if country:
        text += ", " if text else "the " if country in THE else ""
        marks.append(Mark(len(text), len(text) + len(country), f"{event}_country", country, ref))
        text += country
    return Piece(text, tuple(marks))


def works(
    folder: Path, words: Row, makers: Mapping[str, str], *, whole: bool = False
) -> Iterator[Row]:
    """Works with titles of their own, taken in turn from artists who have several; or all works.

    Of all, those without a title of their own have their accession number behind it.
    """
    rows, titles = [], Counter[str]()
    for path in sorted(folder.glob("artworks/**/*.json")):
        row = json.loads(path.read_text("utf-8"))
        row["title"], row["path"] = plain(row["title"]), path.relative_to(folder).as_posix()
        titles[row["title"].casefold()] += 1
        if whole:
            rows.append(row)
            continue
        hands = row["contributors"]
        sure = len(hands) == 1 and hands[0]["role"] == "artist"
        if sure and f"tate-artist-{hands[0]['id']}" in makers and not NO_TITLE.match(row["title"]):
            rows.append(row)
    chosen = rows if whole else _in_turn(rows, titles)
    counts = Counter(name for row in chosen for name in _subjects(row))
    for row in sorted(chosen, key=lambda one: int(one["id"])):
        known = [name for name in _subjects(row) if counts[name] in SUBJECT_WORKS]
        rare = sorted(sorted(known, key=lambda name: (counts[name], name))[:SUBJECTS_A_WORK])
        slots, key = _work_slots(row, makers, rare), f"tate-work-{row['id']}"
        title = row["title"]
        if whole and (titles[title.casefold()] > 1 or NO_TITLE.match(title)):
            title = f"{title} ({row['acno']})"
        kinds: dict[str, Slots] = {
            "maker": {name: slots[name] for name in ("artist", "year")},
            "material": {name: slots[name] for name in ("medium", "classification")},
            "size": {name: slots[name] for name in ("height_mm", "width_mm")},
            "subjects": {"subject": slots["subject"]},
            "movement": {"movement": slots["movement"]},
        }
        bought = {name: slots[name] for name in ("acquisition", "acquisition_year")}
        if bought["acquisition_year"]:
            kinds["acquisition" if bought["acquisition"] else "acquired"] = bought
        text, marks = Writer(words["work"], key, f"“{title}”").write(kinds)
        url = f"https://github.com/tategallery/collection/blob/{TATE_COMMIT}/{row['path']}"
        yield document("work", key, title, text, marks, source="tate", url=url)


def _in_turn(rows: Sequence[Row], titles: Mapping[str, int]) -> list[Row]:
    """Works with titles of their own, taken in turn from artists who have several."""
    own: defaultdict[int, list[tuple[int, bytes, Row]]] = defaultdict(list)
    for row in rows:
        if 1 < len(row["title"]) <= 120 and titles[row["title"].casefold()] == 1:
            rank = -sum(1 for piece in _work_slots(row, {}, []).values() if piece)
            rank -= bool(_subjects(row))
            order = sha256(str(row["id"]).encode()).digest()
            own[row["contributors"][0]["id"]].append((rank, order, row))
    turns = []
    for artist, found in own.items():
        found.sort(key=lambda one: one[:2])
        cap = min(TURNER_WORKS, len(found)) if artist == TURNER else len(found)
        step = isqrt(100 * cap)  # who has more candidates has more turns, but not in proportion
        turns += [(1000 * i // step, *one) for i, one in enumerate(found[:cap]) if cap > 1]
    turns.sort(key=lambda one: one[:3])
    return [row for *_, row in turns[:WORKS]]


def _subjects(row: Row) -> list[str]:
    """What a work depicts: the leaves of its tree of subjects."""
    found, todo = set(), list((row.get("subjects") or {}).get("children", ()))
    while todo:
        node = todo.pop()
        if node["name"] not in NOT_DEPICTED:
            todo += node.get("children", ())
            name = plain(node["name"]).removesuffix(" - non-specific")
            if not node.get("children") and re.fullmatch(r"[\w '\u2019.-]{3,40}", name):
                found.add(name)
    return sorted(found)


def _work_slots(row: Row, makers: Mapping[str, str], subjects: Sequence[str]) -> Slots:
    maker = f"tate-artist-{row['contributors'][0]['id']}"
    year = re.fullmatch(r"\d{4}", (row["dateText"] or "").strip())
    medium, kind = _medium(plain(row["medium"])), plain(row["classification"])
    verb = re.match(r"Purchased|Presented|Bequeathed|Transferred|Accepted", row["creditLine"] or "")
    lines = [line.strip() for line in (row["dimensions"] or "").splitlines()]
    sized = [line for line in lines if line and not line.startswith("frame:")]
    size = (
        re.fullmatch(r"(?:support|image|object): (\d+) x (\d+) mm", sized[0])
        if len(sized) == 1
        else None
    )
    movements = sorted({plain(one["name"]) for one in row.get("movements", ())})
    bought = row.get("acquisitionYear")
    return {
        "artist": fact("artist", makers.get(maker, maker), maker),
        "year": fact("year", int(year[0])) if year else None,
        "medium": fact("medium", medium) if 2 < len(medium) <= 80 else None,
        "classification": fact("classification", kind) if kind else None,
        "acquisition": fact("acquisition", verb[0].lower()) if verb and bought else None,
        "acquisition_year": fact("acquisition_year", int(bought)) if bought else None,
        "height_mm": fact("height_mm", int(size[1])) if size else None,  # Tate names height first,
        "width_mm": fact("width_mm", int(size[2])) if size else None,  # whatever its columns say
        "subject": listing("subject", subjects),
        "movement": listing("movement", movements),
    }


def _medium(text: str) -> str:
    """A medium with the materials of a mixture by name, so that one mixture has one value."""
    text = text.replace("gelatine silver", "gelatin silver").replace("Pen and ink", "Pen-and-ink")
    text = text.replace("pen and ink", "pen-and-ink")
    found = re.fullmatch(
        r"([\w-]+(?: [\w-]+)?(?:, [\w-]+(?: [\w-]+)?)*) and ([\w-]+(?: [\w-]+)?) on (\w+)", text
    )
    if found and " on " not in found[1]:
        parts = sorted(part.casefold() for part in [*found[1].split(", "), found[2]])
        text = f"{', '.join(parts[:-1])} and {parts[-1]} on {found[3]}"
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def main() -> None:
    """Read the sources, write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("tate", "factbook", "poets", "jargon", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    paths = parser.parse_args()
    words = tomllib.loads(Path(__file__).with_name("build.toml").read_text("utf-8"))
    titles = country_titles(paths.factbook, words)
    refs = {title: f"factbook-{code}" for code, (title, _) in titles.items()}
    found = list(artists(paths.tate, words, refs))
    found += works(paths.tate, words, {row["id"]: row["title"] for row in found})
    found += [*countries(titles, words), *poets(paths.poets), *jargon(paths.jargon)]
    lines = (
        json.dumps(row, ensure_ascii=False, sort_keys=True, separators=(",", ":")) for row in found
    )
    data = "".join(f"{line}\n" for line in lines).encode("utf-8")
    packed = lzma.compress(data, format=lzma.FORMAT_XZ, preset=9 | lzma.PRESET_EXTREME)
    paths.out.write_bytes(packed)
    print(
        f"{len(found)} documents, {len(data)} bytes, {len(packed)} packed, "
        f"sha256 {sha256(packed).hexdigest()}"
    )


if __name__ == "__main__":
    main()
