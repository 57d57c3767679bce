"""The sparse-attention language model: architecture, cache, engine, checkpoints, tokenizer.

Needs PyTorch: ``pip install 'envgen[train]'``.
"""
