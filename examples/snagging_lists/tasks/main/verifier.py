import sqlite3


def ordinal(text):
    import datetime
    return datetime.date.fromisoformat(text).toordinal()


def read_defects(db):
    """Each report's number with the defect that it describes."""
    defects, latest = {}, {}
    for report, room, element, fault, severity, reported, flat, stair, zone in db.execute(
            "SELECT report_id, room_id, element, fault, severity, reported_on, flat_id, stair, zone"
            " FROM reports JOIN rooms USING (room_id) JOIN flats USING (flat_id)"
            " ORDER BY reported_on, report_id"):
        first = ordinal(reported)
        defect = latest.get((room, element, fault))
        if defect is None or any(checked <= first for checked, done in defect["passed"]):
            defect = latest[room, element, fault] = {
                "number": report, "room": room, "element": element, "fault": fault, "first": first,
                "flat": flat, "stair": stair, "zone": zone, "severities": [], "failed": 0, "passed": []}
        defects[report] = defect
        defect["severities"].append(severity)
        for done, checked, result in db.execute(
                "SELECT done_on, checked_on, check_result FROM repairs"
                " WHERE report_id = ? AND checked_by = 'client' AND checked_on IS NOT NULL", (report,)):
            done, checked = ordinal(done), ordinal(checked)
            if result == "failed":
                defect["failed"] += 1
            elif result == "passed" and (fault != "leak" or checked - done >= 7):
                defect["passed"].append((checked, done))
    for defect in defects.values():
        serious = "serious" in defect["severities"] or defect["failed"] >= 2
        defect["severity"] = "serious" if serious else "minor"
        defect["cause"] = damaging_report(db, defect)
    for defect in defects.values():
        defect["contract"] = responsible(db, defects, defect)
    return defects


def damaging_report(db, defect):
    """The report on which the repair that did the damage was booked, or None."""
    repairs = [(ordinal(done), repair, report) for done, repair, report in db.execute(
        "SELECT done_on, repair_id, report_id FROM repairs JOIN reports USING (report_id)"
        " WHERE room_id = ? AND also_opened = ?", (defect["room"], defect["element"]))]
    return max((r for r in repairs if 0 <= defect["first"] - r[0] <= 10), default=(None,))[-1]


def responsible(db, defects, defect):
    """The responsible contract, or None if the rules name none: no scope covers the defect, or damage goes in a circle."""
    followed = set()
    while defect["cause"]:
        if defect["number"] in followed:
            return None
        followed.add(defect["number"])
        defect = defects[defect["cause"]]
    row = db.execute(
        "SELECT contract_id FROM contracts JOIN scope USING (contract_id)"
        " WHERE element = ? AND zone = ? AND instr(stairs, ?) ORDER BY contract_id",
        (defect["element"], defect["zone"], defect["stair"])).fetchone()
    return row[0] if row else None


def contract_right(entry, defect):
    """Whether the entry names the responsible contract; where the rules name none, any may stand there."""
    if defect["number"] is None:
        return False
    return defect["contract"] is None or entry["contract"] == defect["contract"]


def listed(answer, db):
    """The listed entries, each with the defect that its report describes."""
    defects = read_defects(db)
    unknown = dict.fromkeys(("number", "severity", "cause", "contract"))
    return [(entry, defects.get(entry["defect"], unknown)) for entry in answer["open_defects"]]


def distinct_defects(db):
    return [defect for report, defect in read_defects(db).items() if report == defect["number"]]


def open_defects(db, severities):
    return [defect for defect in distinct_defects(db)
            if not defect["passed"] and defect["severity"] in severities]


def open_right(answer, db):
    return {defect["number"] for entry, defect in listed(answer, db)} == {
        defect["number"] for defect in open_defects(db, ("minor", "serious"))}


def damage_right(answer, db):
    return all(contract_right(entry, defect)
               for entry, defect in listed(answer, db) if defect["cause"])


def scope_right(answer, db):
    return all(contract_right(entry, defect)
               for entry, defect in listed(answer, db) if not defect["cause"])


def terms(db):
    """Each contract's late days and deduction."""
    defects = distinct_defects(db)
    result = {}
    for contract, serious, minor, rate, most in db.execute(
            "SELECT contract_id, days_serious, days_minor, daily_rate_eur, max_deduction_eur FROM contracts"):
        days = 0
        for defect in defects:
            if defect["contract"] == contract:
                due = defect["first"] + (serious if defect["severity"] == "serious" else minor)
                end = min(defect["passed"])[1] if defect["passed"] else ordinal("2025-06-13")
                days += max(0, end - due)
        result[contract] = {"late_days": days, "deduction_eur": min(days * rate, most)}
    return result


def amounts_right(answer, db, field):
    right = terms(db)
    return all(row[field] == right.get(contract, {field: 0})[field]
               for contract, row in answer["contracts"].items())


def late_right(answer, db):
    return amounts_right(answer, db, "late_days")


def serious_flats(db):
    return {defect["flat"] for defect in open_defects(db, ("serious",))}


def minor_flats(db):
    flats = [defect["flat"] for defect in open_defects(db, ("minor",))]
    return {flat for flat in flats if flats.count(flat) > 2}


def flats_below(db):
    return {flat for defect in open_defects(db, ("serious",)) if defect["fault"] == "leak"
            for flat, in db.execute(
                "SELECT low.flat_id FROM flats low JOIN flats high USING (stair, side)"
                " WHERE high.flat_id = ? AND low.floor = high.floor - 1", (defect["flat"],))}


def records_date(answer, before, after):
    return late_right(answer, before)


def same_defect(answer, before, after):
    numbers = [defect["number"] for entry, defect in listed(answer, before)]
    return len(set(numbers)) == len(numbers)


def defect_number(answer, before, after):
    numbers = [entry["defect"] for entry in answer["open_defects"]]
    return all(defect["number"] in numbers for entry, defect in listed(answer, before))


def cleared(answer, before, after):
    return open_right(answer, before)


def serious(answer, before, after):
    return all(entry["severity"] == defect["severity"] for entry, defect in listed(answer, before))


def damage(answer, before, after):
    return damage_right(answer, before)


def damage_responsible(answer, before, after):
    return damage_right(answer, before)


def scope_responsible(answer, before, after):
    return scope_right(answer, before)


def due_day(answer, before, after):
    return late_right(answer, before)


def late(answer, before, after):
    return late_right(answer, before)


def late_days_sum(answer, before, after):
    return late_right(answer, before)


def deduction(answer, before, after):
    return amounts_right(answer, before, "deduction_eur")


def flat_ready(answer, before, after):
    blocked = serious_flats(before) | minor_flats(before) | flats_below(before)
    return all(flat in blocked or flat in answer["flats_to_hand_over"]
               for flat, in before.execute("SELECT flat_id FROM flats"))


def block_serious(answer, before, after):
    return serious_flats(before).isdisjoint(answer["flats_to_hand_over"])


def block_minor(answer, before, after):
    return minor_flats(before).isdisjoint(answer["flats_to_hand_over"])


def answer(answer, before, after):
    numbers = [entry["defect"] for entry in answer["open_defects"]]
    flats = answer["flats_to_hand_over"]
    return numbers == sorted(numbers) and flats == sorted(flats)


def valid_check(answer, before, after):
    return open_right(answer, before)


def leak_dry(answer, before, after):
    return open_right(answer, before)


def named_contract(answer, before, after):
    return scope_right(answer, before)


def block_below(answer, before, after):
    return flats_below(before).isdisjoint(answer["flats_to_hand_over"])


RULES = {
    'records_date': records_date,
    'same_defect': same_defect,
    'defect_number': defect_number,
    'cleared': cleared,
    'serious': serious,
    'damage': damage,
    'damage_responsible': damage_responsible,
    'scope_responsible': scope_responsible,
    'due_day': due_day,
    'late': late,
    'late_days_sum': late_days_sum,
    'deduction': deduction,
    'flat_ready': flat_ready,
    'block_serious': block_serious,
    'block_minor': block_minor,
    'answer': answer,
    'valid_check': valid_check,
    'leak_dry': leak_dry,
    'named_contract': named_contract,
    'block_below': block_below,
}


def verify(answer, initial, final):
    broken = []
    for name, check in RULES.items():
        before, after = (sqlite3.connect(f"file:{path}?mode=ro", uri=True) for path in (initial, final))
        if check(answer, before, after) is not True:
            broken.append(name)
    return broken
