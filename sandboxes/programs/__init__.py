"""Programs that run inside sandboxes: standard library only, exec'ed clean by file name.

``toolbox`` and ``wire`` are pure and are also imported by the host; the others never are.
"""
