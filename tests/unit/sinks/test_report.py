"""The report of an episode: its words, drawings and formats, and that foreign text is harmless in each of them."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from schemas.catalogue import catalogue
from schemas.units import humane
from sinks.warehouse.report import words
from sinks.warehouse.report.chart import HEIGHT, WIDTH, metric_chart, onset_chart, severity_chart, share_bars
from sinks.warehouse.report.content import Coverage, Fleet, Plot, Proof, Report, Series, Span
from sinks.warehouse.report.gaps import MOST_GAPS, Break, Summary, coverage
from sinks.warehouse.report.markdown import code, plain
from sinks.warehouse.report.markup import Markup, element, together
from sinks.warehouse.report.render import FORMATS, render, render_text
from sinks.warehouse.report.spark import spark
from sinks.warehouse.report.visible import all_visible, visible
from tests.unit.sinks.reports import START, example

HOSTILE = (
    "<script>alert(1)</script>",
    "</style></title></svg><img src=x onerror=alert(1)>",
    '" onload="alert(1)',
    "\x1b[2J\x1b]0;gone\x07",
    "evil\u202etxt.exe\u2066",
    "| a | b |\n\n# heading\n- item\n```\n<b>",
    "[link](http://example.test) ![image](x) **bold** `code` ``` ~~~",
    "`|`|``|",
    "1. first\r\n> quote &lt; &#60;",
    "\ud800\x00\u2028end",
    "x" * 300,
    "[red]rich[/red] [link=http://example.test]markup[/link]",
)


class Page(HTMLParser):
    """Elements and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def svgs(page: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(found) for found in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


FACTS = (
    "host-1: gpu, probable cause host-1",
    "2026-09-21 14:13:20 UTC",
    "30 s",
    "peak 8.5 at 14:13:30, last 3.25",
    "version 7; the time shown was judged by versions 6, 7",
    "look at the fans",
    "gpu.temp",
    "higher, 12 σ",
    "lower, 7 σ",
    "95 C",
    "code 79",
    "an error of the driver",
    "Not only this host: 1 other of 40 known hosts had an episode of gpu",
    "2 hosts had one of other subsystems only",
    "Nothing of gpu from 14:14:00 to 14:14:10 (10 s), 10 batches lost.",
    "5 samples that the agent could not keep",
    "Not scored: 3 windows withheld",
    "No telemetry of cpu.time.user is stored for this time.",
    "2 more are not listed.",
    "14:13:21",
    "75 %",
)


@pytest.mark.parametrize("format_", FORMATS)
def test_every_format_says_every_fact(format_: str) -> None:
    document = render(example(), format_)
    told = " ".join(Page(document).text.split()) if format_ == "html" else " ".join(document.split())
    told = told.replace("\\", "") if format_ == "markdown" else told
    assert [fact for fact in FACTS if fact not in told] == []
    assert document.endswith("\n")


@pytest.mark.parametrize("format_", FORMATS)
def test_an_open_episode_and_one_of_unknown_cause_are_told(format_: str) -> None:
    report = example(closed=False)
    document = render(replace(report, incident=replace(report.incident, cause=None)), format_)
    assert "cause unknown" in document
    assert "35 s so far" in document
    assert "still open" in document


@pytest.mark.parametrize("format_", FORMATS)
def test_a_report_of_nothing_but_the_episode(format_: str) -> None:
    report = example()
    bare = replace(
        report,
        incident=replace(report.incident, explanation="", checks=(), remedy="", shares={}, votes={}, others={}),
        evidence=(),
        plots=(),
        judgements=(),
        unscored=(),
        models=(),
        happenings=(),
        more=0,
        coverage=Coverage({}),
        fleet=Fleet(300.0, 1, 0, 0),
    )
    document = render(bare, format_)
    assert "Only this host" in document
    assert "Nothing of this host is stored between" in document
    assert words.NO_EVIDENCE in document


def test_another_format_is_refused() -> None:
    with pytest.raises(KeyError):
        render(example(), "pdf")


@pytest.mark.parametrize("hostile", HOSTILE)
def test_foreign_text_is_only_text_in_the_page(hostile: str) -> None:
    calm, page = Page(render(example(), "html")), Page(render(example(hostile), "html"))
    assert [name for name, _ in page.elements] == [name for name, _ in calm.elements]
    assert [set(attributes) for _, attributes in page.elements] == [set(attributes) for _, attributes in calm.elements]
    assert page.open == []
    assert visible(hostile) in page.text


@pytest.mark.parametrize("hostile", HOSTILE)
def test_foreign_text_is_only_text_in_markdown(hostile: str) -> None:
    def read(document: str) -> list[tuple[str, str]]:
        tokens: list[tuple[str, str]] = []
        for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(document):
            tokens.append((token.type, token.tag))
            tokens += [
                (each.type, each.tag) for each in token.children or () if each.type not in ("text", "text_special")
            ]
        return tokens

    assert read(render(example(hostile), "markdown")) == read(render(example(), "markdown"))


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("format_", FORMATS)
def test_no_format_lets_a_control_character_through(hostile: str, format_: str) -> None:
    document = render(example(hostile), format_)
    unseen = {each for each in document if unicodedata.category(each) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    assert unseen == {"\n"}
    document.encode()


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("width", [1, 60, 100, 171])
def test_lines_fit_the_terminal(hostile: str, width: int) -> None:
    lines = render_text(example(hostile), width, color=False).splitlines()
    assert max(map(len, lines)) <= max(width, 60)
    assert not any(line.endswith(" ") for line in lines)


@pytest.mark.parametrize("hostile", [*HOSTILE, "温度" * 90])
def test_a_narrow_terminal_loses_nothing(hostile: str) -> None:
    def letters(width: int) -> Counter[str]:
        told = render_text(example(hostile), width, color=False)
        return Counter(each for each in told if each.isalnum())

    assert letters(60) == letters(100) == letters(400)


def test_colour_is_the_only_difference_of_colour() -> None:
    plain_text = render_text(example(HOSTILE[3]), 100, color=False)
    colored = render_text(example(HOSTILE[3]), 100, color=True)
    assert "\x1b[1m" in colored
    assert re.sub(r"\x1b\[[\d;]*m", "", colored).split() == plain_text.split()
    assert re.sub(r"\x1b\[[\d;]*m", "", colored).count("\x1b") == 0


def test_checks_are_commands_to_copy() -> None:
    command = "dmesg -T | grep -iE 'xid|\\bfallen_off\\b'"
    report = replace(example(), incident=replace(example().incident, checks=(command,)))
    assert f"- `{command}`\n" in render(report, "markdown")
    assert command in render(report, "text")
    assert Page(render(report, "html")).texts.count(command) == 1


def test_the_page_needs_nothing_else() -> None:
    page = render(example(), "html")
    names = {name for name, _ in Page(page).elements}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "base", "a", "image", "use"}
    policies = [attributes for _, attributes in Page(page).elements if "http-equiv" in attributes]
    assert policies[0]["content"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert re.findall(r"url\(([^)]*)\)", page) == ["#hatch"]
    assert page.count('id="hatch"') == 1
    assert not re.search(r"https?:|@import|\bsrc=|\bhref=", page)


def test_all_drawings_are_well_formed_and_within_their_box() -> None:
    drawings = svgs(render(example(), "html"))
    # The hatch, the shares, one metric and the severity.
    assert len(drawings) == 4
    for drawing in drawings[1:]:
        _, _, width, height = map(float, drawing.attrib["viewBox"].split())
        for piece in drawing.iter():
            check_within(piece, width, height)


def check_within(piece: ElementTree.Element, width: float, height: float) -> None:
    numbers = {name: float(value) for name, value in piece.attrib.items() if name in {"x", "y", "width", "height", "r"}}
    assert all(math.isfinite(value) for value in numbers.values())
    assert 0 <= numbers.get("x", 0.0) <= numbers.get("x", 0.0) + numbers.get("width", 0.0) <= width
    assert 0 <= numbers.get("y", 0.0) <= numbers.get("y", 0.0) + numbers.get("height", 0.0) <= height
    for pair in piece.attrib.get("points", "").split():
        x, y = map(float, pair.split(","))
        assert 0 <= x <= width
        assert 0 <= y <= height


def plotted(report: Report, plot: Plot) -> ElementTree.Element:
    return ElementTree.fromstring(metric_chart(plot, report))


def by_class(drawing: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [piece for piece in drawing.iter() if piece.attrib.get("class") == name]


def test_a_plot_shows_before_during_and_after() -> None:
    report = example()
    drawing = plotted(report, report.plots[0])
    assert [piece.text for piece in by_class(drawing, "phase")] == ["before", "during", "after"]
    (during,) = by_class(drawing, "during")
    (peak,) = by_class(drawing, "peak")
    left = float(during.attrib["x"])
    assert left < float(peak.attrib["x1"]) < left + float(during.attrib["width"])
    # What is missing is hatched, and no line is drawn across it.
    (unseen,) = by_class(drawing, "unseen")
    lines = by_class(drawing, "line")
    assert len(lines) == len(by_class(drawing, "band")) == 2
    ends = [float(pair.split(",")[0]) for line in lines for pair in (line.attrib["points"].split())]
    gap = float(unseen.attrib["x"]), float(unseen.attrib["x"]) + float(unseen.attrib["width"])
    assert not any(gap[0] + 1 < x < gap[1] - 1 for x in ends)
    # High is above low, and the usual level lies where the line lies before.
    heights = [float(pair.split(",")[1]) for pair in lines[0].attrib["points"].split()]
    assert min(heights[60:90]) < heights[0] == float(by_class(drawing, "expected")[0].attrib["y1"])


def test_single_samples_are_drawn_and_once_more_closer_by() -> None:
    report = example()
    (plot,) = report.plots
    assert len(by_class(plotted(report, plot), "seen")) == 1
    assert onset_chart(plot, report) is None
    at = tuple(START - 10 + 0.1 * place for place in range(700))
    values = tuple(50.0 + place % 7 for place in range(700))
    own = Series(at, tuple(value + 9 for value in values))
    sampled = replace(plot, samples=Series(at, values, values, values), own=own, since=START + 7)
    drawing = plotted(report, sampled)
    for name in ("own behind", "samples behind"):
        (line,) = by_class(drawing, name)
        assert len(line.attrib["points"].split()) == 700
    # The level of the instance stands for its samples only where these are not kept.
    assert by_class(drawing, "seen") == []
    closer = onset_chart(sampled, report)
    assert closer is not None
    drawing = ElementTree.fromstring(closer)
    for piece in drawing.iter():
        check_within(piece, WIDTH, HEIGHT)
    for name in ("own", "line"):
        (line,) = by_class(drawing, name)
        # From 5 s before to 15 s after it began to be strange.
        assert 199 <= len(line.attrib["points"].split()) <= 201
    assert [piece.text for piece in by_class(drawing, "phase")] == ["during"]
    assert render(replace(report, plots=(sampled,)), "html").count("since 14:13:27, sample by sample") == 1
    assert "sample by sample" not in render(report, "html")
    few = replace(sampled, samples=Series(at[::10], values[::10]), own=None)
    assert onset_chart(few, report) is None, "a sample a second is a mean of a second"


def test_an_open_episode_is_shaded_to_the_end() -> None:
    report = example(closed=False)
    (during,) = by_class(plotted(report, report.plots[0]), "during")
    assert float(during.attrib["x"]) + float(during.attrib["width"]) == pytest.approx(WIDTH - 10, abs=0.2)


FLOATS = st.floats(-1e30, 1e30, allow_subnormal=False)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(FLOATS, min_size=1, max_size=30), FLOATS | st.just(math.nan), st.integers(1, 40), st.floats(0.001, 100_000)
)
def test_any_values_are_drawn(values: list[float], expected: float, step: int, length: float) -> None:
    at = tuple(START - 60 + step * place for place in range(len(values)))
    series = Series(at, tuple(values), tuple(values), tuple(values))
    report = replace(example(), span=Span(START - 60, START - 60 + length, 1.0))
    plot = Plot("cpu.load1", "cpu", "", "mean", series, expected, "usual", START, expected, "x")
    for drawn in (metric_chart(plot, report), severity_chart(report.judgements, report)):
        for piece in ElementTree.fromstring(drawn).iter():
            check_within(piece, WIDTH, HEIGHT)
            assert "nan" not in str(piece.attrib.values())
    assert 2 <= len(by_class(plotted(report, plot), "grid")) <= 7


def test_shares_are_drawn_largest_first() -> None:
    drawing = ElementTree.fromstring(share_bars({"cpu": 0.25, "gpu": 0.75, "memory": math.nan}))
    names = [piece.text for piece in drawing.iter() if piece.attrib.get("text-anchor") == "end"]
    bars = [float(piece.attrib["width"]) for piece in by_class(drawing, "bar")]
    assert names[:2] == ["gpu", "cpu"]
    assert bars[0] == pytest.approx(3 * bars[1], abs=0.3)


def test_elements_escape_what_is_no_markup() -> None:
    assert element("b", "<i>", title='"<', data_x=1.25) == '<b title="&quot;&lt;" data-x="1.2">&lt;i&gt;</b>'
    assert together("a&b", Markup("<hr>")) == "a&amp;b<hr>"
    assert element("meta", name="x") == '<meta name="x">'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain – ü 温度", "plain – ü 温度"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\n\tb \r\n c", "a b c"),
        ("\u202eabc\u200b", r"\u202eabc\u200b"),
        ("\ud800", r"\ud800"),
        ("\x00\x7f\x9b", r"\x00\x7f\x9b"),
    ],
)
def test_what_is_unseen_is_spelled_out(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text())
def test_visible_text_stays_as_it_is(text: str) -> None:
    assert visible(visible(text)) == visible(text)


def test_all_text_is_made_visible_and_nothing_else_changes() -> None:
    report = example("a\x1bb")
    shown = all_visible(report)
    assert "\x1b" not in repr(shown)
    assert shown == all_visible(example(r"a\x1bb"))
    assert repr(all_visible(example())) == repr(example())


def line(begin: float, until: float, values: list[float], columns: int) -> str:
    report = example()
    at = [begin + place for place in range(len(values))]
    return spark(at, values, Span(begin, until, 1.0), report.incident, columns)


def test_a_line_of_characters_shows_when_it_was_high() -> None:
    values = [0.0] * 60 + [7.0] * 30 + [1.0] * 30
    assert line(START - 60, START + 60, values, 12) == "▁▁▁▁▁▁│███│▂▂▂"


def test_a_line_of_characters_shows_what_is_missing() -> None:
    values = [1.0] * 20 + [math.nan] * 20 + [5.0] * 20
    assert line(START - 60, START, values, 6) == "▁▁··██││"
    assert line(START - 60, START, [], 4) == "····││"
    assert line(START - 60, START - 60, [1.0], 4) == ""


def test_a_step_longer_than_a_column_leaves_no_holes() -> None:
    report = example()
    at = [START - 60 + 10 * place for place in range(12)]
    drawn = spark(at, [3.0] * 12, Span(START - 60, START + 60, 10.0), report.incident, 60)
    assert "·" not in drawn


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0.0, "0"),
        (0.33333, "0.3333"),
        (-12.5, "-12.5"),
        (1234.5, "1,234"),
        (84_630.0, "84.63 k"),
        (1_500_000.0, "1.5 M"),
        (2.18e10, "21.8 G"),
        (3e12, "3 T"),
        (1e18, "1e+18"),
        (1e-9, "1e-09"),
        (math.nan, "–"),
        (math.inf, "–"),
        (None, "–"),
    ],
)
def test_numbers(value: float | None, told: str) -> None:
    assert words.number(value) == told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.0, "0 s"),
        (1.25, "1.25 s"),
        (45.0, "45 s"),
        (59.6, "1 min"),
        (200.0, "3 min 20 s"),
        (7500.0, "2 h 5 min"),
        (86_400.0, "1 d"),
        (100_000.0, "1 d 3 h"),
        (math.nan, "–"),
    ],
)
def test_durations(seconds: float, told: str) -> None:
    assert words.duration(seconds) == told


def test_times() -> None:
    assert words.moment(START) == "2026-09-21 14:13:20 UTC"
    assert words.clock(START + 0.5) == "14:13:20.500"
    assert words.clock(START + 0.9996) == "14:13:21"
    assert words.moment(math.nan) == words.moment(1e20) == "–"


@pytest.mark.parametrize(("share", "told"), [(0.0, "0 %"), (0.236, "24 %"), (0.9997, "99.9 %"), (1.0, "100 %")])
def test_shares(share: float, told: str) -> None:
    assert words.share(share) == told


def test_an_instance_that_deviates_stands_for_its_metric() -> None:
    proof = Proof(
        "disk.writes", "storage", "nvme0n1", "level of the highest disk", "requests/s", 50.0, 4.0, 9.0, 60.0, 5.0
    )
    assert (words.observed(proof), words.expected(proof)) == ("60 requests/s", "5 requests/s")
    assert words.feature(proof) == "level of the highest disk: 50, usually 4"
    alone = replace(proof, instance="", instance_observed=None, instance_expected=None, deviation=math.nan)
    assert (words.observed(alone), words.expected(alone)) == ("50 requests/s", "4 requests/s")
    assert words.unusual(alone) == "–"


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("gpu.ecc_corrected at 5.5", "gpu.ecc_corrected at 5.5"),
        ("_a_ *b* a|b", r"\_a\_ \*b\* a\|b"),
        ("- item", r"\- item"),
        ("12. item", r"12\. item"),
        ("2026-11-30", "2026-11-30"),
        ("http://x", r"http:\//x"),
    ],
)
def test_markdown_escapes_what_would_be_obeyed(text: str, escaped: str) -> None:
    assert MarkdownIt("commonmark").renderInline(plain(text)) == MarkdownIt("zero").renderInline(text)
    assert plain(text) == escaped


def test_code_holds_its_own_fences() -> None:
    assert code("a`b") == "``a`b``"
    assert code("`") == "`` ` ``"
    assert code("") == ""


SPAN = Span(1000.0, 1100.0, 1.0)
BOTH = {"cpu": Summary(1000.0, 1100.0, 100.0, 0, 0), "gpu": Summary(1000.2, 1099.8, 99.6, 0, 0)}


def test_a_span_without_gaps_is_whole() -> None:
    found = coverage(SPAN, BOTH, [], ["cpu", "gpu"])
    assert (found.gaps, found.more, found.lost, found.dropped, found.flawed) == ((), 0, 0, 0, 0)
    assert found.seen == {"cpu": 1.0, "gpu": pytest.approx(0.996)}
    assert words.unseen(replace(example(), coverage=found, span=SPAN, unscored=())) == [
        "Nothing is missing: every batch of the time shown is stored."
    ]


def test_the_same_gap_of_several_subsystems_is_one() -> None:
    breaks = [Break("cpu", 1010.0, 1014.0, 4), Break("gpu", 1010.2, 1014.1, 4), Break("gpu", 1050.0, 1050.6, 0)]
    found = coverage(SPAN, BOTH, breaks, ["cpu", "gpu"])
    assert [(gap.begin, gap.end, gap.subsystems, gap.lost) for gap in found.gaps] == [
        (1010.0, 1014.1, ("cpu", "gpu"), 8),
        (1050.0, 1050.6, ("gpu",), 0),
    ]
    assert found.lost == 8


def test_the_edges_of_a_span_and_a_silent_subsystem_are_gaps() -> None:
    summaries: dict[str, Summary] = {"cpu": Summary(1005.0, 1090.0, 85.0, 3, 1)}
    found = coverage(SPAN, summaries, [], ["cpu", "gpu"])
    told = words.unseen(replace(example(), coverage=found, span=SPAN, unscored=()))
    assert told == [
        "Nothing of gpu at all.",
        "Nothing of cpu before 00:16:45 (5 s).",
        "Nothing of cpu after 00:18:10 (10 s).",
        "3 samples that the agent could not keep.",
        "1 batch repaired to be read.",
        "Seen of the time shown: cpu 85 %, gpu 0 %.",
    ]


def test_of_many_gaps_the_longest_are_listed_in_order_of_time() -> None:
    breaks = [Break("cpu", 1000.0 + 3 * place, 1000.0 + 3 * place + 0.6 + place / 100, 0) for place in range(30)]
    found = coverage(SPAN, BOTH, breaks, ["cpu", "gpu"])
    assert len(found.gaps) == MOST_GAPS
    assert found.more == 30 - MOST_GAPS
    assert [gap.begin for gap in found.gaps] == [each.begin for each in breaks[-MOST_GAPS:]]


def test_only_this_host_is_said() -> None:
    told = words.fleet(Fleet(300.0, 1, 0, 0), "cpu")
    assert told == "Only this host: no other of 1 known host had an episode of cpu that began within 5 min of it."


def test_figures_in_units_that_people_think_in() -> None:
    factor, unit = humane("KiB/s")
    assert words.figure(factor * 7_076_000, unit) == "7.246 GB/s"
    assert words.figure(512.0, "B") == "512 B"
    assert words.figure(3e6, "pages/s") == "3 M pages/s"
    assert humane("pages/s") == (1.0, "pages/s")
    factor, unit = humane("us/s")
    assert words.figure(factor * 250_000, unit) == "25 %"


def test_every_unit_of_the_catalogue_is_known_or_stays() -> None:
    units = {metric.unit for metric in catalogue().values()}
    told = {unit: humane(unit) for unit in units}
    assert told["sectors/s"] == (512.0, "B/s")
    assert all(math.isfinite(factor) and factor > 0 for factor, _ in told.values())
    # Of what is shown nothing is a thousandth or a thousandfold of a unit.
    assert not {unit for _, unit in told.values()} & {"kB", "KiB/s", "MiB/s", "mW", "uW", "mC", "kHz", "MHz", "ns/s"}


def test_how_certain_a_cause_is_and_what_else_it_may_be() -> None:
    report = example()
    sure = replace(report.incident, cause="gpu_ecc", confidence=0.95, candidates={"a": 0.3, "gpu_ecc": 0.95, "b": 0.6})
    assert words.headline(sure) == "host-1: gpu, probable cause gpu_ecc (95 % certain)"
    told = dict(words.facts(replace(report, incident=sure)))["probable cause"]
    assert told == "gpu_ecc (95 % certain); other candidates: b 60 %, a 30 %"


def test_direction_and_contribution_are_told_where_known() -> None:
    proof = Proof("cpu.load1", "cpu", "", "level", "tasks", 5.0, 1.0, 6.0)
    assert words.unusual(proof) == "higher, 6 σ"
    assert words.contribution(proof) == ""
    told = replace(proof, direction="down", contribution=0.25)
    assert (words.unusual(told), words.contribution(told)) == ("lower, 6 σ", "25 %")
    report = replace(example(), evidence=(told,))
    for format_ in FORMATS:
        assert "25 %" in render(replace(report, incident=replace(report.incident, shares={})), format_)


def test_phases() -> None:
    incident = example().incident
    assert [words.phase(incident, at) for at in (START - 1, START, START + 30, START + 31)] == [
        "before",
        "during",
        "during",
        "after",
    ]
    assert words.phase(example(closed=False).incident, START + 1000) == "during"
