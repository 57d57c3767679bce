"""Map the four top-level rooms into the ``envgen`` package; the rest is in pyproject.toml."""

from setuptools import find_packages, setup

ROOMS = ("environments", "pipelines", "sandboxes", "verifiers")

package_dir = {"envgen": "envgen"} | {f"envgen.{room}": room for room in ROOMS}
packages = {
    f"{name}.{child}".rstrip(".")
    for name, folder in package_dir.items()
    for child in ("", *find_packages(folder))
}

setup(packages=sorted(packages), package_dir=package_dir)
