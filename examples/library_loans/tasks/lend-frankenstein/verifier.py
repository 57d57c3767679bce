import sqlite3

LENT = [("C-1002", "b03", "2026-03-29", 0)]


def loans(path):
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    return db.execute("SELECT card, book, due, returned FROM loans ORDER BY id").fetchall()


def verify(answer, initial, final):
    broken = []
    before, after = loans(initial), loans(final)
    if after[: len(before)] != before:
        broken.append("other loans changed")
    if after[len(before) :] != LENT:
        broken.append("lent")
    if answer["lent"] != [row[0] for row in LENT]:
        broken.append("answer")
    return broken
