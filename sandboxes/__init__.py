"""Run untrusted code: bubblewrap, docker or a plain process, and long-lived workers in them."""

if __name__ != "envgen.sandboxes":  # found as a bare folder because the checkout is on sys.path
    raise ImportError(f"{__name__!r} is a folder of the envgen checkout; import 'envgen.sandboxes'")
