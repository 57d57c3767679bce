"""How Java projects are built: Maven where its artifacts can be had, else javac and the system's jars.

A project whose every dependency is a jar of the layer (``/usr/share/java``) is compiled by javac and
tested by JUnit's console launcher, which needs no plugin of Maven's and takes seconds.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from envgen.core.code_types import DEPENDENCIES, CodeLanguage, Recipe
from envgen.core.errors import WorkspaceError
from envgen.pipelines.code.recipes.files import TreeFiles

CLASSES = "target/envgen-classes"
JARS = "/usr/share/java"
KNOWN = {
    "junit": "junit4", "hamcrest": "hamcrest", "hamcrest-core": "hamcrest-core",
    "hamcrest-library": "hamcrest-library", "hamcrest-all": "hamcrest-all",
}  # fmt: skip
"""Artifacts whose jar has another name in the distribution."""
PLATFORM = re.compile(r"^junit-(jupiter|platform|vintage|bom)")
AVAILABLE = frozenset(
    "commons-lang3 commons-io commons-codec commons-csv commons-collections4 commons-text commons-math3 "
    "commons-cli commons-lang commons-logging guava mockito-core assertj-core jsr305 slf4j-api h2 gson "
    "easymock opentest4j apiguardian-api error_prone_annotations truth byte-buddy objenesis xz asm jimfs "
    "json-path xmlunit-core".split()
)
"""Artifacts that are jars of the same name in Debian, if their packages are installed."""
LEFT_OUT = frozenset(("jmh-core", "jmh-generator-annprocess", "junit-pioneer", "gj-csv", "javacsv"))
"""Artifacts of benchmarks and extensions: a project is not sent to Maven for them, for the few test files
that need one are left out."""
BESIDE = {"json-path": ("json-smart", "accessors-smart", "asm", "slf4j-api")}
"""Jars that another needs when it runs."""
_MAVEN = "mvn -q -B -Dmaven.repo.local=$MAVEN_REPOSITORY"
_SKIP = "-Drat.skip -Dcheckstyle.skip -Denforcer.skip -Djapicmp.skip -Dmaven.javadoc.skip"


def recipe(files: TreeFiles, language: CodeLanguage, cutoff: str | None) -> Recipe:
    """A recipe from pom.xml, build.gradle or the source folders. Raises WorkspaceError without tests."""
    module = _module(files)
    needed = _artifacts(files, module)
    needed = [name for name in needed if name not in LEFT_OUT]
    if all(name in KNOWN or name in AVAILABLE or PLATFORM.match(name) for name in needed):
        return _plain(language, cutoff, module, needed)
    if "pom.xml" in files:
        return _maven(language, cutoff)
    return _gradle(language, cutoff)


def _module(files: TreeFiles) -> str:
    """The folder whose ``src/test/java`` has most tests; empty: the repository itself."""
    tests = [name for name in files.names if re.search(r"(^|/)src/test/java/.*\.java$", name)]
    if not tests:
        raise WorkspaceError(
            "no Java file below src/test/java", "other layouts need a recipe by hand"
        )
    modules = [re.split(r"(?:^|/)src/test/java/", name)[0] for name in tests]
    return max(sorted(set(modules)), key=modules.count)


def _artifacts(files: TreeFiles, module: str) -> list[str]:
    """Artifacts that the module's pom.xml or build.gradle names."""
    start = f"{module}/" if module else ""
    pom = files.text(f"{start}pom.xml") or files.text("pom.xml")
    if pom:
        return _pom_artifacts(pom)
    gradle = files.text(f"{start}build.gradle") + files.text(f"{start}build.gradle.kts")
    return re.findall(r"['\"][\w.-]+:([\w.-]+):", gradle)


def _pom_artifacts(pom: str) -> list[str]:
    try:
        root = ElementTree.fromstring(pom)
    except ElementTree.ParseError as error:
        raise WorkspaceError(
            f"pom.xml is not valid XML: {error}", "fix it, or write a recipe"
        ) from None
    space = re.match(r"\{.*\}", root.tag)
    prefix = space[0] if space else ""
    found = root.findall(f"{prefix}dependencies/{prefix}dependency/{prefix}artifactId")
    return [item.text.strip() for item in found if item.text]


def _plain(language: CodeLanguage, cutoff: str | None, module: str, needed: list[str]) -> Recipe:
    """Everything compiled into one folder; test files that do not compile are left out, one by one."""
    names = sorted({KNOWN.get(name, name) for name in needed if not PLATFORM.match(name)})
    globs = [f"{JARS}/{name}.jar" for name in names]
    globs += [f"{JARS}/{name}.jar" for name in ("junit4", "hamcrest*", "byte-buddy*", "objenesis*")]
    globs += [
        f"{JARS}/{name}.jar" for name in ("junit-jupiter-*", "junit-platform-*", "opentest4j*")
    ]
    globs += [f"{JARS}/apiguardian-api.jar"]
    jars = f"$(ls {' '.join(dict.fromkeys(globs))} 2>/dev/null | paste -sd:)"
    start = f"{module}/" if module else ""
    javac = f'javac -encoding UTF-8 -nowarn -proc:none -g -parameters -d {CLASSES} -cp "{CLASSES}:{jars}"'
    sources = f"find {start}src/{{0}}/java -name '*.java' ! -name module-info.java ! -name package-info.java"
    main = f"rm -rf {CLASSES} {CLASSES}.left; mkdir -p {CLASSES}; {sources.format('main')} > /tmp/main; "
    main += f"{javac} @/tmp/main"
    copy = (
        f"for d in {start}src/main/resources {start}src/test/resources {start}src/main/java "
        f"{start}src/test/java; do [ ! -d $d ] || (cd $d && find . -type f ! -name '*.java' "
        f"-exec cp --parents -t /work/repo/{CLASSES} {{}} +); done"
    )
    tests = (
        f"{sources.format('test')} > /tmp/tests; n=0; while [ -s /tmp/tests ] && ! {javac} -Xmaxerrs 1000 "
        "@/tmp/tests 2> /tmp/said; do n=$((n+1)); [ $n -lt 6 ] || break; "
        "grep -o '^[^ :]*[.]java:[0-9]*: error' /tmp/said | cut -d: -f1 | sort -u > /tmp/broken; "
        "[ -s /tmp/broken ] || { cat /tmp/said; exit 1; }; sed 's/^/not compiled: /' /tmp/broken; "
        f"cat /tmp/broken >> {CLASSES}.left; "
        "grep -vxFf /tmp/broken /tmp/tests > /tmp/rest; mv /tmp/rest /tmp/tests; done"
    )
    return Recipe(
        language=language,
        runner="junit-console",
        packages=("junit4", "junit5", "default-jdk-headless"),
        build=(main, copy, tests),
        variables={"TEST_CLASSES": CLASSES, "CLASSPATH": ":".join(_fixed(names)), **_HOME},
        cutoff=cutoff,
    )


_HOME = {
    "JAVA_TOOL_OPTIONS": "-Duser.home=/work -Djava.io.tmpdir=/tmp",
    "MAVEN_OPTS": "-Xshare:auto",
}


def _fixed(names: list[str]) -> list[str]:
    more = ["byte-buddy", "byte-buddy-agent", "objenesis"]
    more += [jar for name in names for jar in BESIDE.get(name, ())]
    return [f"{JARS}/{name}.jar" for name in dict.fromkeys([*names, *more])]


def _maven(language: CodeLanguage, cutoff: str | None) -> Recipe:
    """Maven; its artifacts are fetched once and used offline."""
    return Recipe(
        language=language,
        runner="surefire",
        install=(
            f"{_MAVEN} {_SKIP} -DskipTests -Dmaven.test.failure.ignore=true test",
            f"{_MAVEN} {_SKIP} -Dtest=NoneOfThem -DfailIfNoTests=false "
            "-Dsurefire.failIfNoSpecifiedTests=false test",
        ),
        options=_SKIP,
        packages=("maven", "default-jdk-headless"),
        variables={"MAVEN_REPOSITORY": f"{DEPENDENCIES}/m2", **_HOME},
        cutoff=cutoff,
    )


def _gradle(language: CodeLanguage, cutoff: str | None) -> Recipe:
    """Gradle; what it fetches stays in its home, which every episode copies."""
    gradle = 'g=./gradlew; [ -x "$g" ] || g=gradle; "$g" --no-daemon --console=plain'
    return Recipe(
        language=language,
        runner="gradle",
        install=(f"{gradle} testClasses",),
        packages=("gradle", "default-jdk-headless"),
        variables={"GRADLE_USER_HOME": f"{DEPENDENCIES}/gradle", **_HOME},
        cutoff=cutoff,
    )
