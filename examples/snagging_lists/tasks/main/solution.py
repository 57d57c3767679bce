def solve():
    # contracts
    contracts = {}
    for row in list_contracts():
        contracts[row["contract_id"]] = get_contract(contract_id=row["contract_id"])

    # flats, rooms and reports
    flats = {}
    zone = {}
    flat_of_room = {}
    reports = []
    for stair in ["A", "B"]:
        for row in list_flats(stair=stair):
            fid = row["flat_id"]
            flat = get_flat(flat_id=fid)
            flats[fid] = flat
            for room in flat["rooms"]:
                zone[room["room_id"]] = room["zone"]
                flat_of_room[room["room_id"]] = fid
            for rep in list_reports(flat_id=fid):
                reports.append(rep)
    for rep in reports:
        if rep["room_id"] not in zone:
            return None

    # today, 13 June 2025: counted on from the earliest report
    today = None
    if len(reports) > 0:
        day = min([rep["reported_on"] for rep in reports])
        while today is None:
            month = int(day[5:7])
            number = int(day[8:10])
            if day[:4] == "2025" and month == 6 and number == 13:
                today = day
            elif day[:4] < "2025" or (day[:4] == "2025" and (month < 6 or (month == 6 and number < 13))):
                day = date_add(day, 1)
            else:
                day = date_add(day, 0 - 1)

    # repairs
    ids = sorted([rep["report_id"] for rep in reports])
    repairs_of = {}
    for rid in ids:
        repairs_of[rid] = []
    repairs = []
    for i in range(0, len(ids), 5):
        for w in get_repairs(report_ids=ids[i:i + 5]):
            repairs_of[w["report_id"]].append(w)
            repairs.append(w)

    def is_valid(w, fault):
        if w["checked_by"] != "client" or w["checked_on"] is None:
            return False
        if fault == "leak" and w["check_result"] == "passed":
            return w["checked_on"] >= date_add(w["done_on"], 7)
        return True

    def clearing(d):
        found = []
        for rid in d["reports"]:
            for w in repairs_of[rid]:
                if w["check_result"] == "passed" and is_valid(w, d["fault"]):
                    found.append(w)
        if len(found) == 0:
            return []
        first = min([w["checked_on"] for w in found])
        return sorted([w for w in found if w["checked_on"] == first], key=lambda w: w["repair_id"])

    # defects
    defects = []
    latest = {}
    defect_of = {}
    room_of_report = {}
    for rep in sorted(reports, key=lambda r: (r["reported_on"], r["report_id"])):
        room_of_report[rep["report_id"]] = rep["room_id"]
        key = (rep["room_id"], rep["element"], rep["fault"])
        same = False
        if key in latest:
            c = clearing(latest[key])
            same = len(c) == 0 or c[0]["checked_on"] > rep["reported_on"]
        if same:
            d = latest[key]
            d["reports"].append(rep["report_id"])
        else:
            d = {"defect": rep["report_id"], "reports": [rep["report_id"]],
                 "first": rep["reported_on"], "room": rep["room_id"],
                 "element": rep["element"], "fault": rep["fault"], "severity": "minor"}
            latest[key] = d
            defects.append(d)
        if rep["severity"] == "serious":
            d["severity"] = "serious"
        defect_of[rep["report_id"]] = d

    # severity and damage
    for d in defects:
        failed = 0
        for rid in d["reports"]:
            for w in repairs_of[rid]:
                if w["check_result"] == "failed" and is_valid(w, d["fault"]):
                    failed = failed + 1
        if failed >= 2:
            d["severity"] = "serious"
        start = date_add(d["first"], 0 - 10)
        doers = [w for w in repairs
                 if room_of_report[w["report_id"]] == d["room"]
                 and w["also_opened"] == d["element"]
                 and w["done_on"] >= start and w["done_on"] <= d["first"]]
        doers = sorted(doers, key=lambda w: (w["done_on"], w["repair_id"]))
        d["damage"] = None
        if len(doers) > 0:
            d["damage"] = doers[-1]["report_id"]

    late = {}
    for cid in contracts:
        late[cid] = 0
    open_defects = []
    blocked = {}
    minor_count = {}
    for fid in flats:
        blocked[fid] = False
        minor_count[fid] = 0

    for d in sorted(defects, key=lambda x: x["defect"]):
        # responsible contract
        e = d
        steps = 0
        while e["damage"] is not None and steps <= len(defects):
            e = defect_of[e["damage"]]
            steps = steps + 1
        fits = []
        if e["damage"] is None:
            stair = flats[flat_of_room[e["room"]]]["stair"]
            for cid in sorted(contracts):
                c = contracts[cid]
                if stair in c["stairs"]:
                    hits = [s for s in c["scope"]
                            if s["element"] == e["element"] and s["zone"] == zone[e["room"]]]
                    if len(hits) > 0:
                        fits.append(cid)
        cleared = clearing(d)
        if len(fits) == 0:
            if len(cleared) == 0:
                return None
            continue
        cid = fits[0]
        c = contracts[cid]

        # late days
        allowed = c["days_minor"]
        if d["severity"] == "serious":
            allowed = c["days_serious"]
        due = date_add(d["first"], allowed)
        end = today
        if len(cleared) > 0:
            end = cleared[0]["done_on"]
        if end > due:
            late[cid] = late[cid] + abs(days_between(due, end))

        # open
        if len(cleared) == 0:
            open_defects.append({"defect": d["defect"], "severity": d["severity"], "contract": cid})
            fid = flat_of_room[d["room"]]
            if d["severity"] == "serious":
                blocked[fid] = True
                if d["fault"] == "leak":
                    f = flats[fid]
                    for other in flats:
                        g = flats[other]
                        if g["stair"] == f["stair"] and g["side"] == f["side"] and g["floor"] == f["floor"] - 1:
                            blocked[other] = True
            else:
                minor_count[fid] = minor_count[fid] + 1

    ready = [fid for fid in sorted(flats) if not blocked[fid] and minor_count[fid] <= 2]
    result = {}
    for cid in sorted(contracts):
        c = contracts[cid]
        result[cid] = {"late_days": late[cid],
                       "deduction_eur": min(late[cid] * c["daily_rate_eur"], c["max_deduction_eur"])}
    return {"flats_to_hand_over": ready, "open_defects": open_defects, "contracts": result}
