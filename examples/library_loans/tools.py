"""The tools of a library's loans desk."""


class ToolError(Exception):
    """A failure that agents are told of: a code, then a message."""


def find_books(db, *, author: str):
    """List the books of an author: book (its id), title, copies (how many the library owns).

    Args:
        author: the full name.
    """
    found = db.execute(
        "SELECT id, title, copies FROM books WHERE author = ? ORDER BY id", (author,)
    )
    return [{"book": row[0], "title": row[1], "copies": row[2]} for row in found]


def list_cards(db, *, branch: str):
    """List the library cards of a branch.

    Args:
        branch: harbour or station.
    """
    found = [
        row[0] for row in db.execute("SELECT id FROM cards WHERE branch = ? ORDER BY id", (branch,))
    ]
    if not found:
        raise ToolError("unknown_branch", "there is no such branch")
    return found


def list_loans(db, *, card: str):
    """List all loans of a card: book (its id), due (a day), returned (true or false).

    Args:
        card: id of a library card.
    """
    _check_card(db, card)
    found = db.execute("SELECT book, due, returned FROM loans WHERE card = ? ORDER BY id", (card,))
    return [{"book": row[0], "due": row[1], "returned": bool(row[2])} for row in found]


def count_open_loans(db, *, book: str):
    """Tell how many copies of a book are out.

    Args:
        book: id of a book.
    """
    return db.execute(
        "SELECT count(*) FROM loans WHERE book = ? AND NOT returned", (book,)
    ).fetchone()[0]


def lend(db, *, card: str, book: str, due: str):
    """Lend a book to a card.

    Args:
        card: id of a library card.
        book: id of a book.
        due: the day it is due, as YYYY-MM-DD.
    """
    _check_card(db, card)
    if db.execute("SELECT 1 FROM books WHERE id = ?", (book,)).fetchone() is None:
        raise ToolError("unknown_book", "there is no such book")
    db.execute("INSERT INTO loans (card, book, due) VALUES (?, ?, ?)", (card, book, due))
    return {"card": card, "book": book, "due": due}


def _check_card(db, card):
    if db.execute("SELECT 1 FROM cards WHERE id = ?", (card,)).fetchone() is None:
        raise ToolError("unknown_card", "there is no such card")
