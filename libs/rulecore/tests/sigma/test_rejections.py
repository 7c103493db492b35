"""A Sigma rule that a Headgate rule cannot express is rejected with file, line and reason; nothing is left out."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore.documents.loading import load_text
from rulecore.documents.rule import MAX_MESSAGE
from rulecore.documents.yaml_reader import read_yaml
from rulecore.sigma import FieldMap, ImportedRule, RejectedDocument, import_rules, read_map, write_rule
from tests.harness.apps.sigma_import import HOSTS, field_map, importing

HEAD = "title: A rule\nlevel: low\nlogsource: {product: linux}\ndetection:\n"


def import_rejected(selection: str, condition: str = "s") -> RejectedDocument:
    report = importing(f"{HEAD}  s: {selection}\n  condition: {condition}\n")
    assert report.imported == ()
    return report.rejected[0]


def import_one(text: str) -> ImportedRule:
    report = importing(text)
    assert not report.rejected, report.rejected[0].problem.render()
    return report.imported[0]


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ("{Image|expand: '%tools%'}", "expand: placeholders have no value"),
        ("{UtcTime|week: 5}", "week: there is no such function"),
        ("{Image|contians: x}", "the modifier 'contians' is not known"),
        ("{Image|re: '(?<=a)b'}", "re: look-around"),
        (r"{Image|re: '(a)\1'}", "re: backreferences are not supported"),
        ("{Image|re: '" + "x" * 300 + "'}", "re: the pattern has more than 256 bytes"),
        ("{Image|re: 5}", "re: needs a pattern as text"),
        ("{Image|re|contains: a}", "contains and re do not go together"),
        ("{Image|i: a}", "i is for re"),
        ("{SourceIp|cidr: 10.0.0.0/99}", "is no network, such as 10.0.0.0/8"),
        ("{DestinationPort|cidr: 10.0.0.0/9}", "a field that holds addresses as text"),
        ("{DestinationPort|contains: 80}", "contains is for text; DestinationPort is long"),
        ("{DestinationPort: '80*'}", "'80*' is no number; the field is long"),
        ("{DestinationPort: '0x50'}", "'0x50' is no number"),
        ("{DestinationPort: true}", "True is no number"),
        ("{Image|gt: 5}", "gt is for numbers; the field is string"),
        ("{DestinationPort|gt: many}", "'many' is no number"),
        ("{DestinationPort|gt|cidr: 5}", "gt and cidr do not go together"),
        ("{Signed: maybe}", "'maybe' is no boolean"),
        ("{UtcTime: '2026-01-01'}", "is no timestamp"),
        ("{Image|exists: x}", "exists: needs true or false"),
        ("{Image|fieldref: DestinationPort}", "Image is string and DestinationPort is long"),
        ("{Image|fieldref: Nothing}", "'Nothing' is no column"),
        ("{Image|base64: 'a*'}", "base64 of a value with wildcards has no meaning"),
        ("{Image|wide: 'a'}", "an encoding makes bytes, which no text column holds"),
        ("{Image|wide|wide|base64: 'a'}", "wide of a value that is encoded already"),
        ("{Image|base64offset|contains: ''}", "a value that is too short"),
        ("{Image|contains: null}", "contains of null has no meaning"),
        ("{Image: []}", "needs a value, or a list of values"),
        ("{Image: {a: b}}", "needs a value, or a list of values"),
        ("{}", "is empty"),
        ("[]", "is empty"),
        ("{'|startswith': [a]}", "keywords: are looked for anywhere"),
    ],
)
def test_a_value_that_cannot_be_compared_is_rejected(selection: str, message: str) -> None:
    problem = import_rejected(selection).problem
    assert message in problem.message
    assert (problem.file, problem.place.line) == ("sigma.yml", 5)
    assert problem.path.startswith("detection.s")


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("s and", "something is missing at its end"),
        ("s or nothing", "there is no 'nothing'; there are s"),
        ("(s", "a bracket is never closed"),
        ("s)", "')' is not expected here"),
        ("s s", "'s' is not expected here"),
        ("2 of them", "`2 of` is not Sigma"),
        ("1 of filter_*", "no selection matches 'filter_*'"),
        ("s | count() > 5", "write a correlation rule instead"),
        ("s & s", "'&' is not expected here"),
        ("'" + "(" * 50 + "s" + ")" * 50 + "'", "nested more than 16 deep"),
        ("'" + "s and " * 3000 + "s'", "more than 8192 characters"),
        ("''", "is empty"),
    ],
)
def test_an_invalid_condition_is_rejected(condition: str, message: str) -> None:
    problem = import_rejected("{Image: x}", condition).problem
    assert message in problem.message
    assert (problem.path, problem.place.line) == ("detection.condition", 6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("logsource: {product: linux}\ndetection: {s: {Image: x}, condition: s}", "needs a title"),
        ("title: x\nlogsource: {product: linux}", "needs either a detection or a correlation"),
        ("title: x\ndetection: {s: {Image: x}, condition: s}", "needs a logsource"),
        ("title: x\nlogsource: {product: linux}\ndetection: {s: {Image: x}}", "needs a condition"),
        ("title: x\nlogsource: {product: linux}\ndetection: {condition: s}", "has no selection"),
        ("title: x\nlevel: huge\nlogsource: {product: linux}\ndetection: {s: {Image: x}, condition: s}", "is no level"),
        ("title: x\nfilter: {rules: [a]}", "Sigma filters are not supported"),
        ("action: global\ntitle: x", "`action` is Sigma 1"),
        (
            "title: x\nlogsource: {product: linux}\ndetection: {s: {Image: x}, timeframe: 5m, condition: s}",
            "timeframe is Sigma 1",
        ),
        (
            "title: x\nlogsource: {product: solaris}\ndetection: {s: {Image: x}, condition: s}",
            "no logsource of the map",
        ),
        ("- a\n- b", "a Sigma rule is a mapping"),
    ],
)
def test_an_invalid_document_is_rejected(text: str, message: str) -> None:
    report = importing(text)
    assert report.imported == ()
    assert message in report.rejected[0].problem.message


def test_all_unmapped_fields_are_named_in_one_problem() -> None:
    problem = import_rejected("[{Nothing|contains: x}, {Image: x, Nowhere: y}]").problem
    assert "'Nothing', 'Nowhere' are no columns of hosts and not in the map" in problem.message
    assert "write `Nothing: COLUMN`, `Nowhere: COLUMN` under fields" in problem.message
    assert problem.path == "detection.s.0.Nothing|contains"


def test_a_rejected_rule_does_not_affect_others() -> None:
    good = HEAD + "  s: {Image: x}\n  condition: s\n"
    report = importing(f"{good}---\n{good.replace('Image', 'Nothing')}---\n{good}")
    assert [one.rule.id for one in report.imported] == ["a-rule", "a-rule-2"]
    assert len(report.rejected) == 1


def test_keywords_without_columns_for_them_are_rejected() -> None:
    documents, _ = read_yaml(HEAD + "  s: [a, b]\n  condition: s\n", "sigma.yml")
    (one,) = import_rules(documents, FieldMap(HOSTS)).rejected
    assert "write the columns that they are looked for in under keywords in the map" in one.problem.message


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("title: x\nlogsource: {product: linux}\ndetection: {s: {Image: x}, condition: s}", "no level: the severity"),
        (HEAD + "  s: {Image: x}\n  t: {Image: y}\n  condition: s", "the condition does not use t"),
        (HEAD + "  s: {SourceIp|cidr: 10.0.0.9/8}\n  condition: s", "cidr: 10.0.0.9/8 was read as 10.0.0.0/8"),
        (HEAD + "  s: {Image|re: x}\n  condition: s", "re: found anywhere in the text"),
        ("status: deprecated\n" + HEAD + "  s: {Image: x}\n  condition: s", "its status is deprecated"),
        ("scope: [server]\n" + HEAD + "  s: {Image: x}\n  condition: s", "ignored: scope"),
        (HEAD.replace("low", "informational") + "  s: {Image: x}\n  condition: s", "alerts of severity low"),
        ("description: " + "x" * 3000 + "\n" + HEAD + "  s: {Image: x}\n  condition: s", "was cut to 2000 characters"),
        ("tags: [a, " + "x" * 200 + "]\n" + HEAD + "  s: {Image: x}\n  condition: s", "tags: 1 of 2 were kept"),
    ],
)
def test_the_import_notes_what_it_approximated_or_left_out(text: str, note: str) -> None:
    assert any(note in one for one in import_one(text).notes)


def test_a_logsource_is_a_condition_or_a_note_unless_the_map_means_all_events() -> None:
    text = HEAD + "  s: {image: x}\n  condition: s\n"
    documents, _ = read_yaml(text, "sigma.yml")
    (unmapped,) = import_rules(documents, FieldMap(HOSTS)).imported
    assert unmapped.notes == (
        "logsource (product linux): the map has no logsources, so the rule reads every event of the stream",
    )
    assert import_one(text).notes == ()
    where = import_one(text.replace("product: linux", "category: webserver")).rule.where
    assert where == "type = 'web' and lower(image) = 'x'"


def test_the_descriptive_entries_of_a_sigma_rule_are_kept() -> None:
    rule = import_one(
        "id: 0e95725d-7320-415d-80f7-004da920fc11\nauthor: Jane\ndate: 2026-01-01\nreferences: [https://example.com]\n"
        "description: Words.\ntags: [attack.t1059]\nfalsepositives: [Tests]\n"
        + HEAD
        + "  s: {Image: x}\n  condition: s"
    ).rule
    assert (rule.id, rule.owner, rule.tags, rule.then.severity.value) == ("a-rule", "soc", ("attack.t1059",), "low")
    for part in ("Words.", "Jane", "0e95725d-7320-415d-80f7-004da920fc11", "https://example.com", "Tests"):
        assert part in rule.description


def test_any_title_makes_a_valid_id_and_message() -> None:
    titles = ["{x} & <y>", "日本", "a" * 256, "{" * 256, "A Rule!", "a rule", "true", "0x1"]
    text = "---\n".join(HEAD.replace("A rule", f"'{t}'") + "  s: {Image: x}\n  condition: s\n" for t in titles)
    report = importing(text)
    assert not report.rejected
    assert len({one.rule.id for one in report.imported}) == len(titles)
    assert all(len(one.rule.then.message) <= MAX_MESSAGE for one in report.imported)


# --- the map ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fields: {A: nothing}", "map.yaml:1:13: fields.A: unknown column nothing"),
        ("fields: {A: {is: image, case: upper}}", "write {is: EXPRESSION, case: lower}"),
        ("fields: [a]", "must be a mapping of Sigma fields"),
        ("fields: {A: 5}", "must be a column or an expression"),
        ("field: {A: image}", "unknown entry"),
        ("keywords: [port]", "is long; keywords are looked for in text"),
        ("logsources: {a: b}", "must be a list of mappings"),
        ("logsources: [{produkt: x}]", "produkt: there are product, category, service, where and fields"),
        ("logsources: [{product: x, where: port}]", "a condition is needed"),
        ("owner: [a]", "owner: must be text"),
        ("- a", "a map is one mapping"),
        ("a: b: c", "not YAML"),
    ],
)
def test_a_map_that_does_not_fit_the_stream_is_rejected_with_its_place(text: str, message: str) -> None:
    found, problems = read_map(text, "map.yaml", HOSTS)
    assert found is None
    assert message in problems[0].render()


def test_the_logsource_with_most_names_applies() -> None:
    text = (
        "logsources: [{product: a, where: port = 1}, {product: a, service: b, where: port = 2, fields: {X: url}}]\n"
        "fields: {X: image}"
    )
    found, problems = read_map(text, "map.yaml", HOSTS)
    assert found is not None
    assert not problems
    general, special = found.logsource({"product": "a"}), found.logsource({"product": "a", "service": "b"})
    assert general is not None
    assert special is not None
    assert (found.target("X", general, ()).column, found.target("X", special, ()).column) == ("image", "url")


# --- hostile files ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_selection_larger_than_an_expression_is_rejected() -> None:
    many = ", ".join(f"'*x{n}*y'" for n in range(300))
    assert "longer than the 4096 bytes of an expression" in import_rejected(f"{{Image: [{many}]}}").problem.message
    many = ", ".join(f"'x{n}'" for n in range(20_000))
    assert "longer than the 4096 bytes of an expression" in import_rejected(f"{{Image: [{many}]}}").problem.message


@pytest.mark.slow
def test_many_selections_that_many_patterns_match_take_bounded_time() -> None:
    selections = "".join(f"  s{n}: {{Image|contains: 'x'}}\n" for n in range(499))
    conditions = ", ".join(["all of s* or 1 of *"] * 400)
    began = time.monotonic()
    rule = import_one(f"{HEAD}{selections}  condition: [{conditions}]\n").rule
    assert rule.where == "contains(lower(image), 'x')"
    assert time.monotonic() - began < 60
    assert "more than 8192 characters" in import_rejected("{Image: x}", f"[{conditions}, {conditions}]").problem.message
    report = importing(f"{HEAD}{selections}  a: {{Image: x}}\n  b: {{Image: x}}\n  condition: a\n")
    assert "more than 500 selections" in report.rejected[0].problem.message


@pytest.mark.parametrize("text", ["&a [*a]", "!!python/object:os.system x", "a: {" * 500, "\0", "\ud800", "- " * 5000])
def test_hostile_yaml_is_rejected(text: str) -> None:
    documents, problems = read_yaml(text, "sigma.yml")
    report = import_rules(documents, field_map())
    assert problems or report.rejected
    assert report.imported == ()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("Imagers|co", max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ["title", "id", "name", "level", "tags", "logsource", "detection", "correlation", "status", "author", "filter"]
)
SELECTION = st.dictionaries(st.sampled_from(["Image", "Image|re", "User|windash"]), VALUES, max_size=2)
DETECTION = st.fixed_dictionaries(
    {"condition": st.text("s tofahenrd1()*", max_size=12) | VALUES}, optional={"s": VALUES | SELECTION}
)
CORRELATION = st.fixed_dictionaries(
    {"type": st.sampled_from(["event_count", "temporal_ordered"]) | VALUES, "rules": st.just(["x"]) | VALUES},
    optional={"group-by": VALUES, "timespan": st.just("5m") | VALUES, "condition": VALUES, "aliases": VALUES},
)


BEGUN = {"title": st.text(min_size=1), "name": st.just("x"), "logsource": st.just({"product": "linux"})}
RULES = st.fixed_dictionaries({**BEGUN, "detection": DETECTION})
CORRELATIONS = st.fixed_dictionaries({**BEGUN, "correlation": CORRELATION})


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=5) | RULES | CORRELATIONS)
def test_any_document_is_imported_and_reads_back_or_is_rejected(value: dict[str, object]) -> None:
    documents, _ = read_yaml(json.dumps(value), "sigma.yml")
    report = import_rules(documents, field_map())
    assert len(report.imported) + len(report.rejected) + len(report.correlation_parts) == len(documents)
    for one in report.imported:
        loaded, faults = load_text(write_rule(one.rule, one.notes))
        assert not faults
        assert [document.rule for document in loaded] == [one.rule]
