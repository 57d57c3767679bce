def solve():
    books = [book for book in find_books(author="Mary Shelley") if book["title"] == "Frankenstein"]
    book = books[0]
    left = book["copies"] - count_open_loans(book=book["book"])
    lent = []
    for card in list_cards(branch="harbour"):
        loans = [loan for loan in list_loans(card=card) if not loan["returned"]]
        late = [loan for loan in loans if loan["due"] < "2026-03-01"]
        if left > 0 and len(loans) < 3 and not late:
            lend(card=card, book=book["book"], due=date_add("2026-03-01", 28))
            lent.append(card)
            left = left - 1
    return {"lent": lent}
