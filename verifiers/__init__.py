"""Score what an episode produced, and attack verifiers until they break or hold."""

if __name__ != "envgen.verifiers":  # found as a bare folder because the checkout is on sys.path
    raise ImportError(f"{__name__!r} is a folder of the envgen checkout; import 'envgen.verifiers'")
