"""Train policies: cold start, group-relative policy optimisation, the indexer's own objectives.

Needs PyTorch: ``pip install 'envgen-gym[train]'``. Each algorithm is one file that reads from top to bottom.
"""
