"""One table of options: precedence, help, and errors that name the place and a fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from example import Example, assert_usage_error

from pytest_ftgate.declare import options
from pytest_ftgate.declare.options import OPTIONS, Option, read, table, weight
from pytest_ftgate.features.shards import shard
from pytest_ftgate.judge import limits
from pytest_ftgate.judge.metrics import GATING
from pytest_ftgate.kit.errors import FtgateError
from pytest_ftgate.kit.values import Metric, Threshold
from pytest_ftgate.model.spec import Load, Service, Source, Spec, TargetError
from pytest_ftgate.model.verdict import Decision
from pytest_ftgate.plugin import collection
from pytest_ftgate.plugin.options import measures, options_of


def by_name(name: str) -> Option:
    return next(option for option in table() if option.name == name)


TEXTS: dict[Callable[[str], Any], tuple[str, str]] = {
    options.truth: ("true", "on"),
    options.target: ("3.14", "3.15t[gil=on]"),
    by_name("update").parse: ("all", "test_a.py::test_it[*]"),
    by_name("baselines").parse: ("one", "three"),
    options.whole: ("0", "8"),
    options.count: ("1", "3"),
    options.seconds: ("90", "20ms"),
    options.fraction: ("2%", "0"),
    options.probability: ("1%", "0.02"),
    options.report_target: ("json:a", "json:c:d"),
    options.decision: ("improved", "regressed"),
    options.metric: ("wall", "lock_wait"),
    by_name("unchanged").parse: ("skip", "measure"),
    by_name("until").parse: ("failure", "time"),
    by_name("existing").parse: ("*::test_a", "*"),
    shard: ("1/2", "7/7"),
    options.revision: ("merge-base", "dist:numpy==2.1"),
    options.threshold: ("wall:margin=3%", "uss:floor=1MiB"),
    weight: ("time=2", "time=0"),
    options.install_step: ("--pre numpy", "-e ."),
}
WRONG: dict[Callable[[str], Any], str] = {
    options.truth: "maybe",
    options.target: "pypy",
    options.whole: "-1",
    options.count: "0",
    options.seconds: "soon",
    options.fraction: "nan",
    options.probability: "100%",
    options.report_target: "xml:a",
    options.decision: "regresed",
    options.metric: "wal",
    by_name("unchanged").parse: "yes",
    by_name("until").parse: "yes",
    shard: "3/2",
    options.revision: "dist:numpy",
    options.threshold: "wall",
    weight: "wall=1",
}
CHECKED = [option for option in table() if option.parse in WRONG]


def resolve(option: Option, cli: Any, ini: Any, declared: Any = None) -> Any:
    return read({option.name: cli}, {option.name: ini}, [option]).declared(option.name, declared)


def name_of(option: Option) -> str:
    return option.name


def expected(option: Option, text: str) -> Any:
    value = option.parse(text)
    return (value,) if option.many else value


def not_default(config: pytest.Config) -> dict[str, Any]:
    values = {option.name: (option.of(options_of(config)), option.default) for option in table()}
    return {name: value for name, (value, default) in values.items() if value != default}


# -- precedence ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", table(), ids=name_of)
def test_command_line_before_ini_before_default(option: Option, pytester: pytest.Pytester) -> None:
    cli, ini = TEXTS[option.parse]

    def value(*args: str) -> Any:
        return option.of(options_of(pytester.parseconfig(*args)))

    assert value() == option.default
    pytester.makeini(f"[pytest]\n{option.dest} = {ini}\n")
    assert value() == expected(option, ini)
    if option.ini_only:
        return
    assert value(option.cli if option.flag else f"{option.cli}={cli}") == (option.flag or expected(option, cli))


def test_the_decorator_stands_between_command_line_and_ini() -> None:
    option = by_name("timeout")
    assert resolve(option, None, "3", None) == 3
    assert resolve(option, None, "3", 2.0) == 2
    assert resolve(option, "0.5", "3", 2.0) == 0.5


@pytest.mark.parametrize("empty", ["", " ", "\n"])
@pytest.mark.parametrize("option", table(), ids=name_of)
def test_an_empty_ini_key_says_nothing(option: Option, empty: str) -> None:
    separators = [*option.lines, *("," * option.commas)]
    for text in (empty, *(f"{empty}{each}" for each in separators)):
        for value in (text, [text], []) if option.many else (text,):
            found = option.of(read({}, {option.name: value}, [option]))
            assert found == (() if option.none else option.default)


def test_an_empty_ini_key_opens_no_gate(pytester: pytest.Pytester) -> None:
    keys = "".join(f"{each.dest} =\n" for each in table() if each.ini != "bool")
    pytester.makeini(f"[pytest]\nftgate = true\n{keys}")
    config = pytester.parseconfig()
    assert measures(config)
    assert not_default(config) == {"ftgate": True, "install": ()}


@pytest.mark.parametrize("name", ["FTGATE", "FTGATE_FAIL_ON", "FTGATE_TIME"])
def test_no_variable_is_an_option(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "")
    assert not_default(pytester.parseconfig()) == {}


def test_targets_of_a_test(pytester: pytest.Pytester) -> None:
    source = """
        @ftgate.compare(serial)
        def test_any(worker): ...

        @ftgate.compare(serial, pythons=["3.15", " 3.15", "3.15t"])
        def test_own(worker): ...
    """
    example = Example(pytester, {"test_a.py": source})

    def targets(*args: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for nodeid in example.collect(*args):
            test, _, cell = nodeid.removeprefix("test_a.py::").partition("[")
            found.setdefault(test, []).append(cell.removesuffix("-serial-w2]"))
        return found

    own = {"test_own": ["3.15", "3.15t"]}
    assert targets() == {"test_any": ["3.14", "3.14t"], **own}
    assert targets("-o", "ftgate_python=3.13 '3.14[gil=on]'") == {"test_any": ["3.13", "3.14[gil=on]"], **own}
    cli = ["--ftgate-python=/opt/python", "--ftgate-python", "3.14", "--ftgate-python=3.14"]
    assert targets(*cli) == {"test_any": ["/opt/python", "3.14"], "test_own": ["/opt/python", "3.14"]}


def test_timeout_of_a_test(pytester: pytest.Pytester) -> None:
    source = """
        @ftgate.compare(serial, pythons=["3.14"])
        def test_any(worker): ...

        @ftgate.compare(serial, pythons=["3.14"], timeout=2)
        def test_own(worker): ...
    """
    Example(pytester, {"test_a.py": source})

    def timeouts(*args: str) -> list[float | None]:
        items, _ = pytester.inline_genitems(*args)
        return [item.stash[collection.CELL][0].timeout_s for item in items]

    assert timeouts() == [60, 2]
    assert timeouts("-o", "ftgate_timeout=3s") == [3, 2]
    assert timeouts("--ftgate-timeout=4s") == [4, 4]


def test_a_step_of_an_installation_per_line() -> None:
    install = by_name("install")
    steps = (("meson-python", "b; python_version < '4'"), ("--no-build-isolation", "-e", ".[a b]"), ("$", "make 'a b'"))
    lines = ["meson-python \"b; python_version < '4'\"", "--no-build-isolation -e '.[a b]'", "$ make 'a b'"]
    assert resolve(install, lines, None) == steps
    assert resolve(install, ["\n".join(lines)], None) == steps
    assert resolve(install, None, "\n ".join(lines)) == steps
    assert resolve(install, None, lines) == steps
    assert resolve(install, [""], None) == resolve(install, None, []) == ()
    assert resolve(install, ["$HOME/a.whl"], None) == (("$HOME/a.whl",),)
    with pytest.raises(FtgateError, match=r"ftgate_install=.*quoted as in a shell: No closing quotation"):
        resolve(install, None, "'a")
    with pytest.raises(
        FtgateError, match=r"ftgate_install=-e \.: takes a step in a line: what follows -e is in the same"
    ):
        resolve(install, None, ["-e", "."])
    with pytest.raises(FtgateError, match=r"--ftgate-install=\$: takes a command after \$"):
        resolve(install, ["$ "], None)


def test_several_words_of_a_value() -> None:
    report = by_name("report")
    assert resolve(report, None, "json:a json:b") == ("json:a", "json:b")
    with pytest.raises(FtgateError, match=r"ftgate_report=.*No closing quotation; quote it as in a shell"):
        resolve(report, None, "'a")


def test_lists_with_commas_or_repeated() -> None:
    fail_on = by_name("fail_on")
    both = (Decision.REGRESSED, Decision.NO_BASELINE)
    assert resolve(fail_on, ["regressed,no-baseline"], None) == both
    assert resolve(fail_on, ["regressed", " no-baseline ,"], None) == both
    assert resolve(fail_on, None, "regressed, no-baseline") == both
    assert resolve(fail_on, None, ["regressed,", "no-baseline"]) == both
    assert resolve(fail_on, ["suspect,beyond-effect"], None) == ("suspect", "beyond-effect")
    assert resolve(fail_on, None, None) == ("regressed", "suspect", "broken", "undecided-run")
    metrics = by_name("metrics")
    assert options.DEFAULT_METRICS == GATING
    assert resolve(metrics, ["wall,uss, wall", "tail"], None) == (Metric.WALL, Metric.USS, Metric.TAIL)
    assert set(resolve(metrics, None, None)) == {"wall", "tail", "start", "uss", "growth", "lock_wait", "payload"}
    with pytest.raises(FtgateError, match=r"--ftgate-metrics=,: takes at least one LIST"):
        resolve(metrics, [","], None)
    with pytest.raises(FtgateError, match=r"--ftgate-fail-on=wall,error: takes regressed, .*; errors always fail"):
        resolve(fail_on, ["wall,error"], None)


def test_lists_in_an_ini_file(pytester: pytest.Pytester) -> None:
    pytester.makeini(
        """
        [pytest]
        ftgate_fail_on = regressed, improved
        ftgate_explain = no
        ftgate_limit =
            wall: margin=3%, effect=8%
            uss: floor=1 MiB
        """
    )
    config = pytester.parseconfig()
    assert options_of(config).fail_on == (Decision.REGRESSED, Decision.IMPROVED)
    assert options_of(config).explain is False
    assert options_of(config).limit == (
        Threshold(metric=Metric.WALL, margin=0.03, effect=0.08),
        Threshold(metric=Metric.USS, floor=2.0**20),
    )


def test_what_to_compare_with(pytester: pytest.Pytester) -> None:
    def against(*args: str) -> Any:
        return options_of(pytester.parseconfig(*args)).against

    assert against() == ""
    assert against("--ftgate-against") == "merge-base"
    assert against("--ftgate-against", "--ftgate") == "merge-base"
    assert against("--ftgate-against=main", "--ftgate-against", "v1") == "v1"


@pytest.mark.parametrize(
    "text",
    ["main", "origin/main", "HEAD~3^", "@{u}", "1a2b3c", "feature/x.y", "dist:a-b.c==1!2+x", "python:3.14t[gil=on]"],
)
def test_revisions(text: str) -> None:
    assert options.revision(f" {text} ") == text


REFUSED: dict[Callable[[str], Any], dict[str, str]] = {
    options.revision: {
        f"dist:{text}": rf"^a version of a distribution: dist:{name}==VERSION, or dist:PATH.whl$"
        for text, name in {"": "NAME", "numpy": "numpy", "a==": "a", "a=1": "a", "==1": "NAME"}.items()
    }
    | dict.fromkeys(
        ("", "-x", "a..", "..b", "a...b", "a..-b", "a..b..c", "tests/", "a b", "x:y"),
        r"a branch, tag or commit, REV..REV, merge-base, dist:NAME==VERSION, dist:PATH.whl, python:TARGET "
        r"or stored",
    ),
    options.report_target: {
        "html": "^a kind and a path: html:PATH",
        "html:": "^a kind and a path: html:PATH",
        "out.json": "^a kind and a path: json:out.json",
        "htm:a": r"^KIND:PATH, and KIND is json, html, md, .* or openmetrics \(did you mean 'html'\?\)",
        "": "^KIND:PATH, and KIND is json",
    },
    options.metric: {
        "wal": r"\(did you mean 'wall'\?\); wall, tail, start, uss, growth, lock_wait and payload gate by default",
        "lock wait": "did you mean 'lock_wait'",
        "ratio": "'ratio' is not a metric that gates",
    },
}


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        pytest.param(parse, text, said, id=f"{parse.__name__} {text}")
        for parse, texts in REFUSED.items()
        for text, said in texts.items()
    ],
)
def test_a_text_that_is_none_is_refused_with_a_fix(parse: Callable[[str], Any], text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse(text)


def test_an_interpreter_to_compare_with_is_a_target() -> None:
    for text, problem in (("python:", "names no interpreter"), ("python:3.14[gli=on]", "unknown setting 'gli=on'")):
        with pytest.raises(FtgateError, match=problem):
            options.revision(text)


def layers(cli: dict[str, Any], ini: dict[str, Any]) -> tuple[tuple[Threshold, ...], tuple[Threshold, ...]]:
    found = read(cli, ini, OPTIONS)
    return found.thresholds, found.ini_thresholds


def test_thresholds_of_each_place() -> None:
    given, written = layers(
        {"limit": ["wall: floor=1 ms; tail: margin=7%; uss: effect=30%", "wall: margin=1%"]},
        {"limit": ["uss: effect=20%", "uss: margin=1%"]},
    )
    assert given == (
        Threshold(metric=Metric.WALL, floor=0.001),
        Threshold(metric=Metric.TAIL, margin=0.07),
        Threshold(metric=Metric.USS, effect=0.3),
        Threshold(metric=Metric.WALL, margin=0.01),
    )
    assert written == (Threshold(metric=Metric.USS, effect=0.2), Threshold(metric=Metric.USS, margin=0.01))
    wall = limits.effective(Metric.WALL, "paired", cli=given, ini=written)
    assert (wall.margin, wall.effect, wall.floor) == (0.01, 0.05, 0.001)
    uss = limits.effective(Metric.USS, "paired", cli=given, ini=written)
    assert (uss.margin, uss.effect) == (0.01, 0.3)
    assert layers({}, {}) == ((), ())
    with pytest.raises(FtgateError, match=r"--ftgate-limit=wal:margin=1%: takes METRIC: .*did you mean 'wall'"):
        layers({"limit": ["wal:margin=1%"]}, {})


def test_what_a_test_lets_gate(pytester: pytest.Pytester) -> None:
    source = Source(path="test_a.py", line=1, module="test_a", qualname="test_a")
    named = tuple(Threshold(metric=name, margin=0.1) for name in ("wall", "latency_p99"))
    spec = Spec(nodeid="", source=source, body="worker", executors=(), workers=(1,), reuse="fresh", thresholds=named)
    assert collection.gated_by(pytester.parseconfig(), spec) == ("latency_p99",)
    assert collection.gated_by(pytester.parseconfig("--ftgate-metrics=uss"), spec) == ()
    assert collection.gated_by(pytester.parseconfig("--ftgate-metrics=latency_p99"), spec) == ()
    pytester.makeini("[pytest]\nftgate_metrics = uss")
    assert collection.gated_by(pytester.parseconfig(), spec) == ("wall", "latency_p99")
    load = Load(path="/", connections=1, generator="oha", rate=5.0)
    steady = msgspec.structs.replace(spec, service=Service(ready="", load=load))
    assert collection.gated_by(pytester.parseconfig(), steady) == ("wall", "latency_p99", "latency_p50")


def test_units() -> None:
    assert [options.seconds(text) for text in ("90", "90s", "1.5m", "2min", "0.5h", "20ms", "5us", "100ns")] == [
        90, 90, 90, 120, 1800, 0.02, pytest.approx(5e-6), pytest.approx(1e-7),
    ]  # fmt: skip
    assert [options.fraction(text) for text in ("2%", "0.02", "0", " 150 %")] == [0.02, 0.02, 0, 1.5]


# -- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", [each for each in CHECKED if not (each.flag or each.ini_only)], ids=name_of)
def test_a_bad_value_of_the_command_line_is_a_usage_error(pytester: pytest.Pytester, option: Option) -> None:
    example = Example(pytester, {"test_a.py": "def test_it(): ..."})
    result = example.run_pytest(f"{option.cli}={WRONG[option.parse]}")
    assert_usage_error(result, f"ERROR: {option.cli}", fix(option))


@pytest.mark.parametrize("option", CHECKED, ids=name_of)
def test_a_bad_value_of_the_ini_is_a_usage_error(pytester: pytest.Pytester, option: Option) -> None:
    example = Example(pytester, {"test_a.py": "def test_it(): ..."})
    wrong = WRONG[option.parse]
    quoted = f"'{wrong}'" if option.many else wrong
    result = example.run_pytest("-o", f"{option.dest}={quoted}")
    assert_usage_error(
        result, f"ini option {option.dest}", "invalid truth value" if option.ini == "bool" else fix(option)
    )


def fix(option: Option) -> str:
    """What the error says that the option takes."""
    try:
        option.parse(WRONG[option.parse])
    except TargetError as error:
        return str(error)
    except ValueError as error:
        return str(error)
    raise AssertionError(f"{WRONG[option.parse]!r} is a good value of {option.name}")


@pytest.mark.parametrize("option", [each for each in table() if not (each.flag or each.ini_only or each.none)])
def test_an_empty_value_of_the_command_line_is_a_usage_error(pytester: pytest.Pytester, option: Option) -> None:
    """An unset variable of a shell must not turn a comparison or a gate off: `--ftgate-fail-on=$FAIL_ON`."""
    for empty in ("", " ", *("," * option.commas), *option.lines):
        with pytest.raises(pytest.UsageError, match=f"^{option.cli}"):
            options_of(pytester.parseconfig(f"{option.cli}={empty}"))


def test_an_update_that_swallowed_its_neighbour(pytester: pytest.Pytester) -> None:
    example = Example(pytester, {"tests/test_a.py": "def test_it(): ...", "all/test_b.py": "def test_it(): ..."})
    result = example.run_pytest("--ftgate-update", "tests/")
    assert_usage_error(result, "--ftgate-update took 'tests/' as its value: write --ftgate-update=new tests/")
    example.run_pytest("--collect-only", "--ftgate-update=all").stdout.fnmatch_lines(["*2 tests collected*"])


def test_what_only_a_measuring_run_uses_is_refused_on_the_command_line_of_another(pytester: pytest.Pytester) -> None:
    example = Example(pytester, {"test_a.py": "def test_it(): ..."})
    for option in (each for each in table() if not each.ini_only):
        text = TEXTS[option.parse][0]
        result = example.run_pytest(option.cli if option.flag else f"{option.cli}={text}", "--ftgate-timeout=9s", "-q")
        if option.name in ("ftgate", "update", "against", "existing"):  # measures; what for, others tests say
            assert "would do nothing" not in result.stderr.str()
        elif option.name in ("python", "timeout"):
            assert result.ret == 0
        else:
            assert_usage_error(result, f"measures nothing, so {option.cli} would do nothing: add --ftgate")
    both = ("--ftgate-report", "json:x.json", "--ftgate-seed=1")
    assert_usage_error(example.run_pytest(*both), "so --ftgate-seed and --ftgate-report would do nothing")
    assert example.run_pytest("--collect-only", *both).ret == 0
    assert example.run_pytest("-o", "ftgate_report=json:x.json", "-o", f"addopts={' '.join(both)}").ret == 0


def test_native_toml(pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml(
        '[tool.pytest.ini_options]\nftgate_python = ["3.13"]\nftgate_explain = false\nftgate_iterations = 3\n'
    )
    config = pytester.parseconfig()
    assert [getattr(options_of(config), name) for name in ("python", "explain", "iterations")] == [("3.13",), False, 3]


@pytest.mark.skipif(pytest.version_tuple < (9,), reason="pytest 9 reads [tool.pytest]")
@pytest.mark.parametrize(
    ("key", "written", "value"),
    [
        ("launches", "5", 5),
        ("launches", '"5"', 5),
        ("alpha", "0.02", 0.02),
        ("timeout", "30.5", 30.5),
        ("timeout", "90", 90.0),
        ("timeout", '"90s"', 90.0),
        ("python", '["3.13", "3.14t"]', ("3.13", "3.14t")),
        ("python", '"3.13 3.14t"', ("3.13", "3.14t")),
        ("install", '""', ()),
        ("report", '"json:a"', ("json:a",)),
    ],
)
def test_a_key_of_tool_pytest_is_what_toml_has(
    pytester: pytest.Pytester, key: str, written: str, value: object
) -> None:
    pytester.makepyprojecttoml(f"[tool.pytest]\nftgate_{key} = {written}\n")
    found = getattr(options_of(pytester.parseconfig()), key)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.skipif(pytest.version_tuple < (9,), reason="pytest 9 reads [tool.pytest]")
@pytest.mark.parametrize("written", ["true", "[3.13]", "{a = 1}", "2026-01-01"])
def test_a_key_of_tool_pytest_that_means_nothing_is_a_usage_error(pytester: pytest.Pytester, written: str) -> None:
    """Of a list of numbers 3.10 would be 3.1."""
    pytester.makepyprojecttoml(f"[tool.pytest]\nftgate_python = {written}\n")
    with pytest.raises(pytest.UsageError, match=r"ini option ftgate_python: .*expects a list"):
        options_of(pytester.parseconfig())


# -- help ----------------------------------------------------------------------------------------------------------


def test_help_shows_every_option_and_its_ini(pytester: pytest.Pytester) -> None:
    result = Example(pytester, {}).run_pytest("--help")
    assert result.ret == pytest.ExitCode.OK
    options_part, _, ini_part = result.stdout.str().partition("options in the first")
    for option in table():
        assert (f"  {option.cli}" in options_part) is not option.ini_only
        assert f"  {option.dest} (" in ini_part


def test_marks_are_registered(pytester: pytest.Pytester) -> None:
    result = Example(pytester, {}).run_pytest("--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.ftgate: cells of @ftgate.compare*"])
