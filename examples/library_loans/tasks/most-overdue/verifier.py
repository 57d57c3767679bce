import sqlite3


def verify(answer, initial, final):
    db = sqlite3.connect(f"file:{initial}?mode=ro", uri=True)
    counts = dict(
        db.execute(
            "SELECT card, count(*) FROM loans WHERE NOT returned AND due < '2026-03-01' GROUP BY card"
        )
    )
    broken = []
    if counts.get(answer["card"], 0) < max(counts.values()):
        broken.append("card")
    if answer["overdue"] != counts.get(answer["card"], 0):
        broken.append("overdue")
    return broken
