"""Pages of a desk with boxes: easy on purpose, or with sums over all boxes."""

DESK = """
id = "desk"
category = "desk"
title = "Desk"
description = "A desk with boxes."
start = "pick"
max_level = 1
steps = []
[lists]
names = "Alder Beech Cedar Dogwood Elm Fir Ginkgo Hazel Ivy Juniper Kapok Larch Maple Nutmeg Oak Pine"
[tables.boxes]
key = "name"
rows = "14"
[tables.boxes.columns]
name = "str = distinct(names)"
price = "int = ints(1, 60)"
weight = "int = distinct_ints(1, 30)"
[tools.boxes]
call = "list_boxes() -> (name, price, weight)"
of = "boxes"
text = "All boxes."
[phrases.apart]
about = "all"
texts = "The {n} boxes must be different."
means = "different([box[k] for k in range(1, n + 1)])"
[scenes.pick]
opening = "Pick {n} boxes."
tables = "boxes"
tools = "boxes"
each = "box"
slots = { box = "boxes" }
"""
FILTERS = """least = 2
most = 2
asks = "heavy apart"
[params]
most = "edge"
[phrases.heavy]
about = "one"
texts = "Box {k} must weigh at most {param:most_{k}}."
means = "box[k].weight <= param.most[k]"
"""
SUMS = """least = 4
most = 4
asks = "apart both budget"
[params]
budget = "edge(share=1)"
[phrases.budget]
about = "all"
texts = "The {n} boxes together must cost at most {param:budget}."
means = "sum(box[k].price for k in range(1, n + 1)) <= param.budget"
[phrases.both]
about = "all"
texts = "All {n} boxes together must weigh at least 70."
means = "sum(box[k].weight for k in range(1, n + 1)) >= 75"
"""
EXACT = SUMS.replace("weigh at least 70", "weigh 97").replace(">= 75", "== 97")
"""Of four boxes the weight is one number: no player but local search meets it often."""
BIG = DESK.replace('rows = "14"', 'rows = "16"').replace("ints(1, 30)", "ints(1, 40)")
