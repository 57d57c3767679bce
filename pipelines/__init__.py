"""Stages and gates that make datasets."""

if __name__ != "envgen.pipelines":  # found as a bare folder because the checkout is on sys.path
    raise ImportError(f"{__name__!r} is a folder of the envgen checkout; import 'envgen.pipelines'")
