"""Keep datasets (folders) and runs (SQLite or PostgreSQL).

- Datasets: ``bundles.py`` (a task, an environment), ``writer.py``, ``dataset.py``, ``manifest.py``,
  ``trust.py`` (whose code may run without isolation), ``splits.py``, ``sqlite_files.py`` (others' files).
- Many small files in one: ``pack.py``, ``variants.py``.
- Runs: ``run_folder.py`` (whether a stopped run may go on), ``runs.py``, ``run_tables.py``.
- For others: ``card.py``, ``hub_card.py``, ``parquet_rows.py``, ``export`` in ``envgen.rollout``.
"""
