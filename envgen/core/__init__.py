"""Shared records, the constraint IR, errors and seeding; standard library and pydantic only."""
