"""Tools for reading the defect records of the Birkenhof housing block."""

import sqlite3
from typing import Literal


class ToolError(Exception):
    """A mistake in a call; carries a short code and a message."""

    def __init__(self, code: str, message: str):
        super().__init__(code, message)
        self.code = code
        self.message = message


def _rows(db: sqlite3.Connection, sql: str, params: tuple = ()) -> list:
    cursor = db.execute(sql, params)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row)) for row in cursor.fetchall()]


def _flat(db: sqlite3.Connection, flat_id: str) -> dict:
    found = _rows(
        db,
        "SELECT flat_id, stair, floor, side, area_m2 FROM flats WHERE flat_id = ?",
        (flat_id,),
    )
    if not found:
        raise ToolError("unknown_flat", f"There is no flat {flat_id!r}.")
    return found[0]


def list_flats(db: sqlite3.Connection, *, stair: Literal["A", "B"]) -> list:
    """List the flats of one stair of the block.

    Returns a list, in order of flat_id, of {flat_id, floor, side}. Floor 0 is the
    ground floor; side is left or right, seen from the stair.

    Args:
        stair: The stair, A or B.
    """
    return _rows(
        db,
        "SELECT flat_id, floor, side FROM flats WHERE stair = ? ORDER BY flat_id",
        (stair,),
    )


def get_flat(db: sqlite3.Connection, *, flat_id: str) -> dict:
    """Show a flat and its rooms.

    Returns {flat_id, stair, floor, side, area_m2, rooms}; rooms is a list, in order
    of room_id, of {room_id, name, zone}. The zone is wet for a tiled room and dry
    for a room with parquet and painted walls.

    Args:
        flat_id: The flat, for example A1.
    """
    flat = _flat(db, flat_id)
    flat["rooms"] = _rows(
        db,
        "SELECT room_id, name, zone FROM rooms WHERE flat_id = ? ORDER BY room_id",
        (flat_id,),
    )
    return flat


def list_reports(db: sqlite3.Connection, *, flat_id: str) -> list:
    """List all defect reports made in a flat, as they were written down.

    The list is raw: repeated reports and reports of repaired defects are in it.
    Returns a list, in order of report_id, of {report_id, room_id, element, fault,
    severity, named_contract, reported_on}. severity is minor or serious;
    named_contract is the contract that the reporter named; dates are YYYY-MM-DD.

    Args:
        flat_id: The flat, for example A1.
    """
    _flat(db, flat_id)
    return _rows(
        db,
        "SELECT report_id, reports.room_id, element, fault, severity, named_contract,"
        " reported_on FROM reports JOIN rooms ON rooms.room_id = reports.room_id"
        " WHERE flat_id = ? ORDER BY report_id",
        (flat_id,),
    )


def get_repairs(db: sqlite3.Connection, *, report_ids: list[str]) -> list:
    """Show all repairs that were booked on the given reports, each with its check.

    Returns a list, in order of repair_id, of {repair_id, report_id, done_on,
    also_opened, checked_on, checked_by, check_result}. also_opened is another element
    of the same room that was opened, moved or taken off for the repair, or null.
    checked_by is client (the client's inspector) or contractor (the contractor
    itself); check_result is passed or failed. All three check fields are null if the
    repair has not been checked. A report without repairs adds nothing to the list.

    Args:
        report_ids: One to five report numbers, for example ["R101", "R102"].
    """
    if not report_ids:
        raise ToolError("no_reports", "Give at least one report number.")
    if len(report_ids) > 5:
        raise ToolError("too_many_reports", "Give at most five report numbers.")
    for report_id in report_ids:
        if not _rows(db, "SELECT 1 FROM reports WHERE report_id = ?", (report_id,)):
            raise ToolError("unknown_report", f"There is no report {report_id!r}.")
    marks = ", ".join("?" for _ in report_ids)
    return _rows(
        db,
        "SELECT repair_id, report_id, done_on, also_opened, checked_on, checked_by,"
        f" check_result FROM repairs WHERE report_id IN ({marks}) ORDER BY repair_id",
        tuple(report_ids),
    )


def list_contracts(db: sqlite3.Connection) -> list:
    """List the contracts with the trades.

    Returns a list, in order of contract_id, of {contract_id, trade, company}.

    Args:
        (none)
    """
    return _rows(
        db,
        "SELECT contract_id, trade, company FROM contracts ORDER BY contract_id",
    )


def get_contract(db: sqlite3.Connection, *, contract_id: str) -> dict:
    """Show the terms and the scope of a contract.

    Returns {contract_id, trade, company, stairs, days_serious, days_minor,
    daily_rate_eur, max_deduction_eur, scope}. stairs is "A", "B" or "A and B";
    days_serious and days_minor are the calendar days allowed for the repair of a
    defect of that severity; scope is a list, in order of element and then zone, of
    {element, zone}: the elements that the contract covers, for each zone of room.

    Args:
        contract_id: The contract, for example C1.
    """
    found = _rows(
        db,
        "SELECT contract_id, trade, company, stairs, days_serious, days_minor,"
        " daily_rate_eur, max_deduction_eur FROM contracts WHERE contract_id = ?",
        (contract_id,),
    )
    if not found:
        raise ToolError("unknown_contract", f"There is no contract {contract_id!r}.")
    contract = found[0]
    contract["scope"] = _rows(
        db,
        "SELECT element, zone FROM scope WHERE contract_id = ? ORDER BY element, zone",
        (contract_id,),
    )
    return contract
