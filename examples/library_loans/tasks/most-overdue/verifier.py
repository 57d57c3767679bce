import sqlite3


def loans(path):
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    return db.execute("SELECT card, book, due, returned FROM loans ORDER BY id").fetchall()


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
    if loans(final) != loans(initial):
        broken.append("loans changed")
    return broken
