def solve():
    best = {"card": "", "overdue": 0}
    for branch in ["harbour", "station"]:
        for card in list_cards(branch=branch):
            late = [
                loan
                for loan in list_loans(card=card)
                if not loan["returned"] and loan["due"] < "2026-03-01"
            ]
            if len(late) > best["overdue"]:
                best = {"card": card, "overdue": len(late)}
    return best
