"""The documents in prose of the packaged corpus: countries, poets, hackers' words.

Their facts stand where a strict pattern finds them; what is in doubt has none.
"""

from __future__ import annotations

import gzip
import html
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

POETS = 1000
REGIONS = (
    "Africa|Antarctic Region|Arctic Region|Asia|Central America and the Caribbean|Europe|Middle East|"
    "North America|Oceania|South America|Southeast Asia"
)
MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
NO_START = (
    "traditional|founding|beginning|expulsion|unif|elected|constitution|proclaimed|established"
)
SINCE = (
    rf"^(?:\d{{1,2}}(?:-\d{{1,2}})? (?:{MONTHS}) )?(\d{{3,4}})"
    rf"(?: \((?![^()]*(?:\d{{3}}|{NO_START}))[^()]*\))?(?=$|; notable)"
)
"""The one date of a country's independence, in whatever form; not one of a founding or a new state."""
HAN = "[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0002ffff]"
REIGNS = (
    "武德|貞觀|永徽|顯慶|龍朔|麟德|乾封|總章|咸亨|儀鳳|調露|永隆|永淳|垂拱|天授|證聖|聖曆|久視|神龍|景龍|景雲|先天|"
    "開元|天寶|至德|乾元|寶應|廣德|永泰|大曆|建中|興元|貞元|永貞|元和|長慶|寶曆|開成|會昌|大中|咸通|乾符|廣明|中和|光啓|"
    "文德|龍紀|大順|景福|乾寧|光化|天復|天祐|開平|乾化|貞明|龍德|同光|天成|長興|清泰|天福|開運|乾祐|廣順|顯德|保大|開寶"
)
SEATS = "太原|京兆|河南|渤海|會稽|吳興|弘農|滎陽|隴西|扶風|清河"
OFFICES = (
    "尚書|侍郎|郎中|員外郎|刺史|節度使|觀察使|御史|御史中丞|御史大夫|縣令|縣尉|主簿|司馬|參軍|博士|學士|舍人|諫議大夫|少尹|"
    "京兆尹|河南尹|長史|別駕|中書令|侍中|僕射|少卿|寺卿|祕書監|秘書監|少監|祭酒|司業|常侍|補闕|拾遺|校書郎|著作郎|詹事|"
    "賓客|留守|給事中|令|尉|丞|卿|少保|少傅|少師|太保|平章事|正字|評事|司直|推官|判官|記室|書記|從事|都督"
)
DIGITS = {sign: value for value, sign in enumerate("一二三四五六七八九", 1)}


Row = dict[str, Any]


class Mark(NamedTuple):
    """A fact of a text: what it says, and where."""

    start: int
    end: int
    attribute: str
    value: str | int | float
    ref: str | None = None


def document(kind: str, key: str, title: str, text: str, marks: Sequence[Mark], **more: Any) -> Row:
    """A document as a line of the file, with its facts where its text says them."""
    facts = []
    for mark in sorted(set(marks)):
        shown = text[mark.start : mark.end]
        assert not isinstance(mark.value, str) or shown == mark.value, (key, mark, shown)
        facts.append({k: v for k, v in mark._asdict().items() if v is not None})
    base = {"class": kind, "id": key, "title": title, "text": text, "facts": facts}
    return {"url": None, "date": None, "language": "en", **base, **more}


def plain(text: str | None) -> str:
    """A text without HTML, in composed letters, with single spaces."""
    bare = re.sub(r"<[^>]*>", " ", re.sub(r"<br */?>|</p>", "; ", text or ""))
    line = " ".join(unicodedata.normalize("NFC", html.unescape(bare)).split())
    return re.sub(r"\s*;(\s*;)+", ";", re.sub(r" ([,;)]|\.(?= |$))", r"\1", line)).strip("; ")


class Lines:
    """A text of labelled lines, and the facts in it."""

    def __init__(self) -> None:
        self.text, self.marks = "", list[Mark]()

    def add(self, label: str, text: str, found: Sequence[Mark] = ()) -> None:
        """A line, with facts whose spans count from the start of ``text``."""
        if text and text != "none":
            self.text += ("\n" if self.text else "") + f"{label}: "
            at = len(self.text)
            self.text += text
            self.marks += [one._replace(start=one.start + at, end=one.end + at) for one in found]


def whole(text: str) -> int | float:
    """A number as the Factbook writes it."""
    bare = text.removesuffix(" million").replace(",", "")
    if bare != text.replace(",", ""):
        return int(Decimal(bare) * 1_000_000)
    return float(bare) if "." in bare else int(bare)


def spotted(attribute: str, pattern: str, text: str, value: Any = str) -> list[Mark]:
    """The first group of a pattern that the text must have exactly once, as a fact."""
    found = list(re.finditer(pattern, text))
    if len(found) != 1:
        return []
    return [Mark(found[0].start(1), found[0].end(1), attribute, value(found[0][1]))]


def country_titles(folder: Path, words: Row) -> dict[str, tuple[str, Row]]:
    """Factbook code -> name and record, of what is a country or a territory."""
    found = {}
    for path in sorted(folder.glob("*/*.json")):
        if path.parent.name in ("meta", "oceans", "world") or path.stem == "ee":
            continue
        row = json.loads(path.read_text("utf-8"))
        short = field(row, "Government", "Country name", "conventional short form")
        found[path.stem] = words["titles"].get(path.stem, short), row
    return found


def field(row: Row, *path: str) -> str:
    """A field's text, plain; empty if there is none."""
    node: Any = row
    for name in path:
        node = node.get(name, node.get(f"{name} ")) if isinstance(node, dict) else None
    return plain(node.get("text")) if isinstance(node, dict) else ""


def countries(titles: Mapping[str, tuple[str, Row]], words: Row) -> Iterator[Row]:
    """One document a country, of the sections that say what it is."""
    refs = {title: f"factbook-{code}" for code, (title, _) in titles.items()}
    for _, (title, row) in sorted(titles.items()):
        lines = Lines()
        lines.add("Name", title)
        lines.add(
            "Official name", field(row, "Government", "Country name", "conventional long form")
        )
        lines.add("Background", field(row, "Introduction", "Background"))
        _geography(lines, row, words, refs)
        _people(lines, row)
        _government(lines, row)
        rate = re.sub(r" per US dollar.*", "", field(row, "Economy", "Exchange rates", "Currency"))
        lines.add("Currency", rate, spotted("currency_code", r"^[^()]+\(([A-Z]{3})\)$", rate))
        lines.add("Economy", field(row, "Economy", "Economic overview"))
        net = field(row, "Communications", "Internet country code")
        lines.add("Internet country code", net, spotted("internet_code", r"^(\.[a-z]{2})$", net))
        more = {"source": "factbook", "date": "2026"}
        yield document("country", refs[title], title, lines.text, lines.marks, **more)


def _geography(lines: Lines, row: Row, words: Row, refs: Mapping[str, str]) -> None:
    def of(*path: str) -> str:
        return field(row, "Geography", *path)

    lines.add("Location", of("Location"))
    region = of("Map references")
    lines.add("Region", region, spotted("region", f"^({REGIONS})$", region))
    area = of("Area", "total")
    lines.add(
        "Area",
        area,
        spotted("area_km2", r"^([\d,.]*\d(?: million)?) sq km(?:$|;| \()", area, whole),
    )
    lines.add("Compared with others", of("Area - comparative"))
    lines.add("Border countries", *_borders(of("Land boundaries", "border countries"), words, refs))
    coast = of("Coastline")
    lines.add(
        "Coastline",
        coast,
        spotted("coastline_km", r"^([\d,]+(?:\.\d+)?) km(?:$| \()", coast, whole),
    )
    lines.add("Climate", of("Climate"))
    lines.add("Terrain", of("Terrain"))
    top = of("Elevation", "highest point")
    peak = (
        r"^((?!unnamed|sea level|[^;]*(?:alternatively|aka))[^\d();]+?),?(?: \([^()]*\))?"
        r" [\d,]+(?: m)?(?: \([^()]*\))?$"
    )
    height = r"^(?!.*eruption|Baker)(?:\([^()]*\)|[^;()])*? ([\d,]+)(?: m)?(?: \([^()]*\))?(?:$|;)"
    found = spotted("highest_point", peak, top)
    lines.add("Highest point", top, found + spotted("highest_elevation_m", height, top, whole))
    lines.add("Natural resources", of("Natural resources"))


def _borders(text: str, words: Row, refs: Mapping[str, str]) -> tuple[str, list[Mark]]:
    """The neighbours, under the names of their documents."""
    shown, last, marks = "", 0, dict[str, Mark]()
    for found in re.finditer(r"(?:^|[;,] | and )([A-Z][^;,\d(]*?)(?: \([^()]*\))? [\d,.]*\d", text):
        title = words["countries"].get(found[1], found[1])
        shown += text[last : found.start(1)]
        if title in refs:
            mark = Mark(len(shown), len(shown) + len(title), "border", title, refs[title])
            marks.setdefault(title, mark)
        shown += title if title in refs else found[1]
        last = found.end(1)
    return shown + text[last:], list(marks.values())


def _people(lines: Lines, row: Row) -> None:
    people = field(row, "People and Society", "Population", "total")
    found = spotted("population", r"^([\d,]+)(?: \(20\d\d(?: est\.)?\))?$", people, whole)
    lines.add("Population", people, found)
    text = field(row, "People and Society", "Languages", "Languages")
    text = text or field(row, "People and Society", "Languages")
    said = re.split(r"; note|; other", text)[0]
    language = (
        r"(?:^|[,;/] | or | and )(?:Castilian |Persian )?([A-Z][a-z]+(?: [A-Z][a-z]+)?)(?: only)?"
        r"(?: \((?!.*official)[^()]*\)| \(or [^()]*\))?(?: <?[\d.]+%)?"
        r" \((?:[^();,]*; )?official(?! (?:in|minority|regional|second))[^()]*\)"
    )
    spoken = [
        Mark(*one.span(1), "official_language", one[1]) for one in re.finditer(language, said)
    ]
    lines.add("Languages", text, list({str(one.value): one for one in spoken}.values()))
    lines.add("Religions", field(row, "People and Society", "Religions"))


def _government(lines: Lines, row: Row) -> None:
    def of(*path: str) -> str:
        return field(row, "Government", *path)

    rule = of("Government type")
    lines.add("Government", rule, spotted("government", r"^([A-Za-z -]{5,50})$", rule))
    seat = of("Capital", "name")
    lines.add(
        "Capital", seat, spotted("capital", r"^((?!none)[^();,:\d]+?)(?: \([^()]*\))?$", seat)
    )
    free = of("Independence")
    lines.add("Independence", free, spotted("independence_year", SINCE, free, int))
    day = re.sub(rf"({MONTHS}) (\d{{1,2}})$", r"\2 \1", of("National holiday"))
    national = (
        rf"(?:^|; |(?<=\)) and )(?!previous)[^;,\d]+, (\d{{1,2}} (?:{MONTHS}))"
        r"(?: \([^()]*\))*(?=$|[;,]| and | - )"
    )
    days = {
        one[1]: Mark(*one.span(1), "national_day", one[1]) for one in re.finditer(national, day)
    }
    lines.add("National holiday", day, list(days.values()))


def poets(path: Path) -> Iterator[Row]:
    """Those poets of the Tang whose lives say most."""
    rows = json.loads(path.read_text("utf-8"))
    names = Counter(row["name"] for row in rows)
    found = []
    for row in rows:
        name, text = row["name"], (plain(row["desc"]).split(" ") or [""])[0]
        own = text.startswith((name, name[1:])) and len(name) > 1 and not name.endswith("等")
        if own and names[name] == 1 and len(text) >= 10 and re.fullmatch(f"{HAN}+", name):
            key = f"tang-{row['id'].replace('-', '')[:12]}"
            found.append((key, name, text, life_facts(name, text)))
    found.sort(key=lambda one: (-_worth(one[3]), -min(len(one[2]), 300), one[0]))
    for key, name, text, marks in sorted(found[:POETS]):
        yield document("poet", key, name, text, marks, source="chinese-poetry", language="zh")


def _worth(marks: Sequence[Mark]) -> int:
    """How much a life says: what poets share counts twice."""
    return sum(1 if one.attribute in ("courtesy_name", "poems") else 2 for one in marks)


def life_facts(name: str, text: str) -> list[Mark]:
    """What the life of a Tang poet surely says."""
    start = f"^(?:{name}|{name[1:]})"
    style = rf"{start}\uff0c(?:一?名{HAN}+\uff0c)?字({HAN}{{2}})[\uff0c。]"
    found = spotted("courtesy_name", style, text)
    home = re.match(
        rf"{start}\uff0c(?:字{HAN}{{1,3}}\uff0c)?(?P<all>{HAN}{{1,6}})人[\uff0c。]", text
    )
    if home and not re.search(
        r"[時中初末間年代朝唐隋夫道舉詩宮女何族後門僧孫子不先世本國人]", home["all"]
    ):
        at = home.start("all")
        parts = re.fullmatch(f"({HAN}{{1,2}}[州郡府]|{SEATS})?({HAN}{{1,3}})?", home["all"])
        for group in (1, 2):
            if parts and parts[group]:
                span = parts.span(group)
                found.append(Mark(at + span[0], at + span[1], "home", parts[group]))
    degree = (
        rf"(?:(?<=\uff0c)|(?<=。)|(?<=登)|(?<=擢)|(?<=第))((?:{REIGNS})(?:[元一二三四五六七八九十]+年)?)(?:中|初|末|間)?\uff0c?"
        rf"(?:(?:登|擢|中|第)進士第?(?:及第)?|(?:舉|應)?進士(?:第|及第|擢第|登第)|進士|登第|及第|擢第)(?=[\uff0c。])"
    )
    for one in spotted("degree_year", degree, text):
        if (
            not re.search(r"[父兄弟子孫祖][^\uff0c。]{0,3}[\uff0c。]$", text[: one.start])
            or one.start < 12
        ):
            reign = str(one.value)[:2]
            found.append(Mark(one.start, one.start + 2, "degree_reign", reign))
            found += [one] if len(str(one.value)) > 2 else []
    found += spotted("era", rf"[\uff0c。]((?:{REIGNS}))(?:時|中|間)人[\uff0c。]", text)
    found += spotted(
        "last_office",
        rf"[\uff0c。](?:官|仕)?終於?((?![州縣]){HAN}{{0,8}}(?:{OFFICES}))[\uff0c。]",
        text,
    )
    found += spotted("posthumous_name", rf"[\uff0c。][諡謚]曰?((?!爲){HAN}{{1,2}})[\uff0c。]", text)
    if text.count("詩") == 1:
        found += spotted(
            "poems", "。(?:今存|存|補)?詩([一二三四五六七八九十]{1,3})首。", text, _count
        )
    return found


def _count(text: str) -> int:
    """A Chinese number below a hundred."""
    tens, _, ones = text.rpartition("十")
    return (10 * DIGITS.get(tens, 1) if "十" in text else 0) + DIGITS.get(ones, 0)


def jargon(folder: Path) -> Iterator[Row]:
    """The Jargon File's entries, as prose without facts."""
    raw = gzip.decompress((folder / "jargon.dict.dz").read_bytes())
    signs = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    seen = set[str]()
    for line in sorted((folder / "jargon.index").read_text("utf-8").splitlines()):
        _, *span = line.split("\t")
        at, size = (sum(64**i * signs.index(c) for i, c in enumerate(n[::-1])) for n in span)
        title, _, body = raw[at : at + size].decode("utf-8").partition("\n")
        title = " ".join(title.split())
        body = re.sub(r"\{\s*([^{}]*?)\s*\}", r"\1", re.sub(r"“\s+", "“", body))
        text = "\n\n".join(
            " ".join(part.split()) for part in re.split(r"\n\s*\n", body) if part.strip()
        )
        if text and title and title not in seen and not line.startswith("00-database"):
            seen.add(title)
            text = unicodedata.normalize("NFC", text)
            yield document("term", f"jargon-{len(seen):04d}", title, text, [], source="jargon")
