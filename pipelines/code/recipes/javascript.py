"""How JavaScript and TypeScript projects are built: npm or pnpm, ``node_modules`` moved to ``/env``.

A lock file in the repository is obeyed. Without one, dependencies are of the base commit's day or
older (``npm --before``); linters and release tools are left out where not all can be had. Install
scripts do not run.
"""

from __future__ import annotations

import re
from typing import Any

from envgen.core.code_types import DEPENDENCIES, CodeLanguage, Recipe
from envgen.core.errors import WorkspaceError
from envgen.pipelines.code.recipes.files import TreeFiles
from envgen.pipelines.code.recipes.scripts import RunnerCall, find_test_command

REPORTERS = {"jest": "jest-junit@16", "mocha": "mocha-junit-reporter@2"}
"""Packages that runners need to write XML."""
_MODULES = f"{DEPENDENCIES}/node_modules"
_MOVE = f"""
mv node_modules {_MODULES} && ln -s {_MODULES} node_modules
cd {_MODULES} && find . -maxdepth 2 -type l -lname '../*' | while IFS= read -r l; do
  t=$(realpath -ms "/work/repo/node_modules/$(dirname "$l")/$(readlink "$l")")
  case $t in /work/repo/node_modules/*) ;; /work/repo/*) ln -sfn "$t" "$l" ;; esac
done
for cache in .vite .vitest .cache .vite-temp; do [ -e $cache ] || ln -s /tmp $cache; done
"""
"""Links to the repository's own packages are made absolute; tools may write their caches to /tmp."""
_LOCK = "const p=require('./package.json'),f=require('fs');"
_FROM_PINS = (
    f"node -e \"{_LOCK}const q={{'':p}};"
    f"for(const l of f.readFileSync('{DEPENDENCIES}/constraints.txt','utf8').split('\\n'))"
    "if(l)Object.assign(q,JSON.parse(l));"
    "const d=p.devDependencies||{};for(const k in d)if(!q['node_modules/'+k])delete d[k];"
    "f.writeFileSync('package.json',JSON.stringify(p));"
    "f.writeFileSync('package-lock.json',JSON.stringify({lockfileVersion:3,requires:true,packages:q}))\""
)
"""The command that makes a lock file of the recipe's pins; what was left out stays left out."""
_TOOLS = (
    "eslint|prettier|standard|lint|husky|commit|release|changelog|^gulp|^verb|^grunt|nyc|^c8$|coverage|coveralls"
    "|codecov|benchmark|tinybench|size|docs?$|typedoc|remark|^np$|^tsd$|safe-publish|evalmd|aud$|npmignore"
)
WITHOUT_TOOLS = (
    "node -e \"const f=require('fs'),p=JSON.parse(f.readFileSync('package.json'));"
    "const d=p.devDependencies||{};"
    f"for(const k in d)if(/{_TOOLS}/.test(k)){{delete d[k];console.log('left out: '+k)}}"
    "f.writeFileSync('package.json',JSON.stringify(p))\""
)
"""Forget linters, release tools and the like, where not everything can be had."""
_PINS = (
    "node -e \"const f=require('fs'),r=n=>{try{return JSON.parse(f.readFileSync(n)).packages}catch(e){}};"
    "const q=r('package-lock.json')||r('node_modules/.package-lock.json')||{};"
    'for(const k in q)if(k)console.log(JSON.stringify({[k]:q[k]}))" '
    f"> {DEPENDENCIES}/pins.txt"
)
"""The command that writes the pins; of npm's two lock files the hidden one lacks what other systems need."""
_NPM = "npm {0} --package-lock --ignore-scripts --no-audit --no-fund --no-progress --loglevel=error"
_LOOKED_AT = 60
"""Test files that are read to learn what they import."""
_PNPM = {"5": "7", "6": "8", "9": "9"}
"""Version of pnpm's lock files -> the pnpm that reads it."""


def recipe(files: TreeFiles, language: CodeLanguage, cutoff: str | None) -> Recipe:
    """A recipe from package.json and the lock files. Raises WorkspaceError without a known runner."""
    package = files.json("package.json")
    if not package:
        raise WorkspaceError("no package.json in the repository", "choose another language")
    command = find_test_command(package)
    if command is None:
        script = package.get("scripts", {}).get("test", "")
        raise WorkspaceError(
            f"no known test runner in package.json; its test script is {script!r}",
            "write a recipe by hand, or let a model write it",
        )
    return Recipe(
        language=language,
        runner=command.runner,
        options=command.options,
        install=(*_install(files, package, cutoff), *_reporter(command)),
        build=_build(files, package, command),
        variables={"NO_UPDATE_NOTIFIER": "1", "npm_config_offline": "true"} | command.variables,
        cutoff=cutoff,
    )


def _install(files: TreeFiles, package: dict[str, Any], cutoff: str | None) -> tuple[str, ...]:
    online = "export npm_config_offline=false NODE_ENV=development;"
    if "pnpm-lock.yaml" in files:
        pnpm = f"npx --yes pnpm@{_pnpm(files, package)}"
        flags = "--ignore-scripts --config.package-import-method=copy"
        frozen = f"{pnpm} install --frozen-lockfile {flags} --store-dir /tmp/store"
        return (f"{online} {frozen}", f"set -e{_MOVE}")
    before = f" --before={cutoff}" if cutoff else ""
    attempts = [
        _NPM.format("install") + before,
        _NPM.format("install") + before + " --legacy-peer-deps",
        _NPM.format("install") + " --legacy-peer-deps",
        f"{{ {WITHOUT_TOOLS} && {_NPM.format('install')} --legacy-peer-deps; }}",
    ]
    if "package-lock.json" in files or "npm-shrinkwrap.json" in files:
        attempts = [_NPM.format("ci"), _NPM.format("ci --legacy-peer-deps"), *attempts]
    locked, loose = (_NPM.format(f"{word} --legacy-peer-deps") for word in ("ci", "install"))
    again = f"{_FROM_PINS} && {{ {locked} || {loose}; }}"
    first = (
        f"if [ -s {DEPENDENCIES}/constraints.txt ]; then {again}; else {' || '.join(attempts)}; fi"
    )
    keep = "git checkout -q -- . && { git ls-files | grep -qx package-lock.json || rm -f package-lock.json; }"
    return (f"{online} {first}", f"mkdir -p node_modules && {_PINS} || :", keep, f"set -e{_MOVE}")


def _pnpm(files: TreeFiles, package: dict[str, Any]) -> str:
    named = re.match(r"pnpm@(\d+\.\d+\.\d+)", str(package.get("packageManager", "")))
    if named:
        return named[1]
    written = re.search(r"^lockfileVersion:\s*'?(\d+)", files.text("pnpm-lock.yaml"), re.MULTILINE)
    return _PNPM.get(written[1] if written else "", "9")


def _reporter(command: RunnerCall) -> tuple[str, ...]:
    """The reporter and what it needs, where the project does not see them."""
    package = REPORTERS.get(command.runner)
    if package is None:
        return ()
    name = package.partition("@")[0]
    place = f"{_MODULES}/{name}"
    install = _NPM.format(f"install --legacy-peer-deps --prefix /tmp/reporter {package}")
    return (
        f"set -e; export npm_config_offline=false; [ ! -e {place} ] || exit 0; {install}; "
        f"mv /tmp/reporter/node_modules/{name} {place}; mkdir -p {place}/node_modules; "
        f"cp -rn /tmp/reporter/node_modules/. {place}/node_modules/",
    )


def _build(files: TreeFiles, package: dict[str, Any], command: RunnerCall) -> tuple[str, ...]:
    """What the test script does before the tests, and the build where its result is not in the tree."""
    scripts = package.get("scripts", {})
    if command.before:
        return tuple(f"npm run --silent {name}" for name in command.before)
    guessed = [name for name in ("build", "compile", "prepare") if name in scripts][:1]
    if not _lacks_main(files, package) or not _tests_import_main(files, package):
        return ()
    return tuple(f"npm run --silent {name} || echo 'left out: {name}'" for name in guessed)


def _tests_import_main(files: TreeFiles, package: dict[str, Any]) -> bool:
    """Whether a test loads the package as its users do, and not from its sources."""
    folder = str(package.get("main") or "dist").removeprefix("./").partition("/")[0]
    names = [r"\.\.?/?", rf"(?:\.\.?/)+{re.escape(folder)}(?:/[^'\"]*)?"]
    names += [re.escape(package["name"])] if isinstance(package.get("name"), str) else []
    loads = re.compile(rf"(?:require\(|from |import )['\"](?:{'|'.join(names)})['\"]")
    tests = files.matching("test/*", "tests/*", "*/test/*", "*/tests/*", "*.test.*", "*.spec.*")
    code = [name for name in tests if re.search(r"\.[cm]?[jt]sx?$", name)]
    return any(loads.search(files.text(name)) for name in code[:_LOOKED_AT])


def _lacks_main(files: TreeFiles, package: dict[str, Any]) -> bool:
    """Whether what others import of the package is not there before it is built."""
    named = package.get("main") or package.get("module") or "index.js"
    if not isinstance(named, str):
        return False
    path = named.removeprefix("./").rstrip("/")
    known = (path, f"{path}.js", f"{path}/index.js", f"{path}.cjs", f"{path}.mjs", f"{path}.ts")
    return not any(name in files for name in known)
