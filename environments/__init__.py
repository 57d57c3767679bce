"""Gymnasium environments over datasets: the step API that agents and trainers use."""

if __name__ != "envgen.environments":  # found as a bare folder because the checkout is on sys.path
    raise ImportError(
        f"{__name__!r} is a folder of the envgen checkout; import 'envgen.environments'"
    )
