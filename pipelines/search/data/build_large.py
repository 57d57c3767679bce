"""Make large corpora, which are not packaged, of local copies of their sources, for ``envgen corpus build``.

``python -m envgen.pipelines.search.data.build_large tate --tate DIR --factbook DIR --out FILE.jsonl``: all of
the Tate's collection (72,736 documents); its schema is the package's, ``envgen/store/data/corpus.toml``.
``... poetry --poetry DIR --out FILE.jsonl``: Tang poems, Song lyrics and their authors (91,115); its schema
is ``large_poetry.toml`` here.
"""

from __future__ import annotations

import argparse
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from envgen.pipelines.search.data.build_corpus import artists, works
from envgen.pipelines.search.data.build_prose import (
    HAN,
    Mark,
    Row,
    country_titles,
    document,
    life_facts,
    plain,
)

IMAGES = (
    "白雲 明月 春風 秋風 青山 流水 落日 夕陽 芳草 落花 楊柳 芙蓉 桃花 浮雲 風雨 清風 東風 "
    "西風 洞庭 瀟湘 滄海 長安 洛陽 江南 黃河 南山 天台 黃金 白髮 白頭 故人 故鄉 故園 孤舟 "
    "扁舟 鴛鴦 鳳皇 將軍 天子 君王 美人 公子 神仙 蓬萊 寒食 三月 二月 十年 千年 百年 萬里 "
    "千里 笙歌 琵琶 旌旗 車馬 高樓 樓臺 空山 惆悵 寂寞 相思 別離 離別 歸去 惜春 梅花 春风 "
    "秋风 东风 西风 斜阳 夕阳 杨柳 梨花 海棠 黄昏 鸳鸯 长安 断肠 憔悴 阑干 帘幕 天涯 归去 "
    "画楼 小楼 玉楼 蝴蝶 燕子 杜鹃 白发 红尘 蓬莱"
).split()
"""Things that poems name, in both scripts; each stands in many."""
_IMAGE = re.compile("|".join(IMAGES))
_LINE = re.compile(f"{HAN}+")


def tate(folder: Path, factbook: Path) -> Iterator[Row]:
    """All artists and works of the Tate."""
    words = tomllib.loads(Path(__file__).with_name("build.toml").read_text("utf-8"))
    titles = country_titles(factbook, words)
    makers = list(artists(folder, words, {}))
    assert titles
    yield from makers
    yield from works(folder, words, {row["id"]: row["title"] for row in makers}, whole=True)


def poetry(folder: Path) -> Iterator[Row]:
    """Poems of the Tang, lyrics of the Song, and who wrote them."""
    people = list(_authors(folder))
    yield from people
    names = {(row["title"], row["class"]): row["id"] for row in people}
    poems = [
        (one, "poem", "poet", "唐", "句")
        for path in sorted(folder.glob("全唐诗/poet.tang.*.json"))
        for one in json.loads(path.read_text("utf-8"))
    ]
    poems += [
        (one, "lyric", "lyricist", "宋", "句")
        for path in sorted(folder.glob("宋词/ci.song.*.json"))
        for one in json.loads(path.read_text("utf-8"))
    ]
    seen = Counter(_heading(one) for one, *_ in poems)
    used: set[str] = set()
    for one, kind, maker, era, unit in poems:
        lines = _LINE.findall("".join(one["paragraphs"]))
        author = plain(one["author"])
        if not lines or re.search(r"[^\w\s·]", author):
            continue
        title = _heading(one)
        if kind == "lyric":
            title = f"{title}·{lines[0]}"
        elif seen[title] > 1:
            title = f"{title}\uff08{author}\uff09"
        if title in used:
            title = f"{title}·{lines[0]}"
        if title in used or len(title) > 120:
            continue  # an edition's second copy
        used.add(title)
        yield _poem(one, kind, title, names.get((author, maker)), f"{era}代{author}", unit, lines)


def _poem(
    row: Row, kind: str, title: str, maker: str | None, signed: str, unit: str, lines: list[str]
) -> Row:
    author = signed[2:]
    text, marks = f"{title}\n{signed[:2]}", list[Mark]()

    def say(attribute: str, shown: str, value: str | int, ref: str | None = None) -> None:
        nonlocal text
        marks.append(Mark(len(text), len(text) + len(shown), attribute, value, ref))
        text += shown

    say("author", author, author, maker)
    text += "\n"
    lengths = {len(line) for line in lines}
    if kind == "lyric":
        text += "詞牌\uff1a"
        say("tune", plain(row["rhythmic"]), plain(row["rhythmic"]))
        text += "\uff0c"
    else:
        form = {frozenset({5}): "五言", frozenset({7}): "七言"}.get(frozenset(lengths), "雜言")
        say("form", form, form)
        text += "詩\uff0c"
    text += "共"
    say("lines", str(len(lines)), len(lines))
    text += f"{unit}\n"
    start = len(text)
    text += "\n".join(row["paragraphs"])
    found = dict[str, Mark]()
    for match in _IMAGE.finditer(text, start):
        found.setdefault(match[0], Mark(*match.span(), "image", match[0]))
    key = sha256(f"{title}\n{text}".encode()).hexdigest()[:16]
    more = [*marks, *found.values()]
    return document(
        kind, f"{kind}-{key}", title, text, more, source="chinese-poetry", language="zh"
    )


def _heading(row: Row) -> str:
    return plain(row.get("title") or row.get("rhythmic"))


def _authors(folder: Path) -> Iterator[Row]:
    for kind, name, field in (
        ("poet", "全唐诗/authors.tang.json", "desc"),
        ("lyricist", "宋词/author.song.json", "description"),
        ("songpoet", "全唐诗/authors.song.json", "desc"),
    ):
        rows = json.loads((folder / name).read_text("utf-8"))
        count = Counter(plain(row["name"]) for row in rows)
        for row in rows:
            title, text = plain(row["name"]), plain(row.get(field))
            if count[title] > 1 or not text or not re.fullmatch(f"{HAN}+", title):
                continue
            text = text if text.startswith(title) or kind == "poet" else f"{title}\uff1a{text}"
            key = sha256(f"{kind} {title}".encode()).hexdigest()[:12]
            marks = life_facts(title, text) if kind == "poet" else []
            yield document(
                kind, f"{kind}-{key}", title, text, marks, source="chinese-poetry", language="zh"
            )


def main() -> None:
    """Read the sources, write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("tate", "poetry"))
    for name in ("tate", "factbook", "poetry"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    rows = tate(given.tate, given.factbook) if given.what == "tate" else poetry(given.poetry)
    count = 0
    with open(given.out, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n")
            count += 1
    print(f"{count} documents")


if __name__ == "__main__":
    main()
