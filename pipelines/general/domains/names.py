"""Pools of invented proper names: natural, varied and free of any order that could mark a row."""

from __future__ import annotations

from random import Random

_WORDS = """
Amber Azure Bamboo Birch Blossom Bluebird Bridge Bright Bronze Camphor Canal Cedar Chestnut Cicada
Cloud Copper Coral Courtyard Cove Crane Crescent Crystal Cypress Dawn Dragonfly Drum Dune East
Echo Ember Emerald Evening Feather Fern Fir Firefly Garden Ginkgo Ginger Glass Golden Grand Grove
Harbor Harvest Haven Heron Hibiscus Hill Indigo Iris Island Ivory Ivy Jade Jasmine Juniper Kingfisher
Kite Lagoon Lake Lantern Lark Laurel Lily Linden Lotus Lychee Magnolia Mango Maple Marble Meadow Mist
Moon Morning Mulberry North Oak Ocean Olive Opal Orange Orchid Osmanthus Paper Peach Pear Pearl Peony
Persimmon Phoenix Pine Plum Pomelo Poplar Quiet Quill Rain Red Reed Ridge River Rose Saffron Sail Sand
Scarlet Sesame Silk Silver Snow South Sparrow Spring Star Stone Summer Summit Sunset Swallow Swan
Tea Terrace Thistle Tide Valley Velvet Violet Walnut Water West White Wild Willow Wind Winter Wisteria
""".split()

_LAST = {
    "hotel": """
Hotel|Inn|Lodge|House|Guesthouse|Residence|Suites|Plaza Hotel|Park Hotel|Garden Hotel|Boutique Hotel
|View Hotel|Court|Retreat|Palace Hotel|Station Hotel|Rooms|Manor
""",
    "restaurant": """
Kitchen|Noodle House|Tea House|Bistro|Restaurant|Dumplings|Hot Pot|Grill|Canteen|Table|Dining Hall
|Eatery|Seafood|Pavilion Restaurant|Cafe|Wok|Soup House|Barbecue
""",
    "attraction": """
Temple|Garden|Museum|Pagoda|Park|Old Town|Gallery|Lake Walk|Tower|Botanical Garden|Opera House
|Ancient Street|Aquarium|Cave|Observatory|Palace|City Wall|Science Hall
""",
}
SUFFIXES = {
    kind: [last.strip() for last in text.replace("\n", "").split("|")]
    for kind, text in _LAST.items()
}
"""Last words of the names, by kind; no two kinds share one."""


def unique_names(rng: Random, kind: str, count: int) -> list[str]:
    """``count`` different names of ``kind`` (a key of ``SUFFIXES``), in random order.

    One or two words before the suffix, so that names of one kind differ in length and look alike.
    """
    names: list[str] = []
    seen: set[str] = set()
    while len(names) < count:
        words = rng.sample(_WORDS, 1 if rng.random() < 0.6 else 2)
        suffix = rng.choice(SUFFIXES[kind])
        name = " ".join([*words, suffix])
        if name not in seen and not set(words) & set(suffix.split()):
            seen.add(name)
            names.append(name)
    return names


_GIVEN = """
Aiko Ana Anders Bao Beatriz Bilal Chen Chiara Dana Daniel Elena Emeka Eva Farah Felix Fen Grace Hana
Haruto Ines Ivan Jia Jonas Jun Kamal Kira Lan Leila Liam Lin Lucia Maja Marco Mei Mina Nadia Noor Olga
Omar Paolo Priya Qiang Rahul Rosa Sara Sofia Tao Tariq Tomas Uma Vera Wei Xia Yan Yara Yusuf Zhen Zoe
""".split()
_FAMILY = """
Almeida Bauer Berg Chang Chen Conti Costa Deng Diaz Fang Fischer Gao Garcia Guo Haddad Han He Hu
Ivanova Jiang Kato Khan Kim Kowalski Lang Larsen Lee Li Liu Lopez Lu Ma Meyer Mori Nasser Nilsson
Novak Okafor Oliveira Park Peng Petrov Qian Rao Rossi Sato Shen Silva Singh Sun Tanaka Tang Wang Wu
Xie Xu Yamada Yang Ye Yilmaz Yu Zhang Zhao Zheng Zhou Zhu
""".split()


def person(rng: Random) -> str:
    """A made-up traveller's full name."""
    return f"{rng.choice(_GIVEN)} {rng.choice(_FAMILY)}"
