"""Keep datasets (folders) and runs (SQLite or PostgreSQL)."""
