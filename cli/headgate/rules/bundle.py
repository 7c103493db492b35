"""Files of rules, lists and streams, read and checked together: the first step of every `headgate rules` command.

Promises: a ``RuleBundle`` either has no problems, and then every rule in it compiles against the streams, or names the
file, line and column of each necessary change. Does not know Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.errors import InputError
from headgate.records import stream_files as streams
from rulecore.check import RuleCost, check_rules
from rulecore.check_features import check_published
from rulecore.check_policies import check_policies
from rulecore.compile.decision_policy import CompiledPolicy
from rulecore.compile.feature import with_definitions
from rulecore.compile.rule import CompiledRule
from rulecore.documents.loading import LoadedPolicy, LoadedRule, load_features, load_path, load_policies
from rulecore.documents.published_feature import PublishedFeature
from rulecore.documents.rule import Rule
from rulecore.documents.yaml_reader import Problem
from rulecore.language import ListType
from streamcore.schema import StreamSchema

if TYPE_CHECKING:
    from rulecore.lists.files import ListFile
    from rulecore.lists.store import ListStore

_LISTS = Path("lists")
_SAMPLE_EVENTS = 100_000
_SHIPPED = Path(__file__).resolve().parents[3] / "rules"


@dataclass(frozen=True, slots=True)
class RuleBundle:
    """Rules that compile, their costs in the same order, the lists that they may use, and the problems of others.

    ``warnings``: what an author should read of rules that compile. ``policies``: the decision policies. ``features``:
    the published features of the files, by name.
    """

    streams: Mapping[str, StreamSchema]
    rules: tuple[CompiledRule, ...]
    costs: tuple[RuleCost, ...]
    problems: tuple[Problem, ...]
    lists: tuple[ListFile, ...] = ()
    warnings: tuple[Problem, ...] = ()
    policies: tuple[CompiledPolicy, ...] = ()
    features: Mapping[str, PublishedFeature] = field(default_factory=dict)

    def list_store(self, known: ListStore | None = None) -> ListStore:
        """Return a store with the lists of the bundle, and those of ``known`` that have other names."""
        from rulecore.lists.snapshots import control_records, store_from_records
        from rulecore.lists.store import ListStore

        own = {one.head.list: one.records() for one in self.lists}
        return store_from_records(
            [*control_records(known or ListStore.empty(), own), *(row for rows in own.values() for row in rows)]
        )

    def list_records(self) -> dict[str, list[tuple[str, bytes]]]:
        """Return keys and values of the control records that publish each list, by the name of the list."""
        return {one.head.list: one.records() for one in self.lists}


def shipped_rules(stream: str) -> Path:
    """Return ``rules/STREAM`` in the working directory, or else the shipped one."""
    here = Path("rules") / stream
    return here if here.is_dir() else _SHIPPED / stream


def load_streams(folder: Path | None = None) -> dict[str, StreamSchema]:
    """Load all streams of a folder, by name. Raises ``InputError`` if there is none."""
    where = folder or streams.default_folder()
    names = sorted(path.stem for path in where.glob("*.yaml"))
    if not names:
        raise InputError(f"streams: no *.yaml in {where}; name the folder that declares them with --streams")
    return {schema.name: schema for schema in (streams.load_stream(name, where) for name in names)}


def read_lists(folder: Path | None) -> tuple[list[ListFile], list[Problem]]:
    """Read the lists of a folder or file; by default those of ``lists/`` in the working directory, if it exists."""
    if folder is not None and not folder.exists():
        raise InputError(f"lists: no such file or folder: {folder}")
    if folder is None and not _LISTS.is_dir():
        return [], []
    from rulecore.lists.files import load_lists  # imports polars, which only lists need

    return load_lists(folder or _LISTS)


def read_rules(paths: Sequence[Path]) -> list[Rule]:
    """Read the documents of rules in these files and folders, with the definitions of the published features there that
    they name; those that are none are left out."""
    loaded = (one.feature for path in dict.fromkeys(paths) for one in load_features(path))
    features = {one.feature: one for one in loaded if one is not None}
    found = [one.rule for one in _read(paths)[0] if one.rule is not None]
    return [one if {*_named(one)} - features.keys() else with_definitions(one, features) for one in found]


def _named(rule: Rule) -> Iterable[str]:
    """Yield the names of the published features that a rule names."""
    return (one for one in rule.features if isinstance(one, str))


def read_bundle(  # noqa: PLR0913 - what files lack may come from an app, part by part
    paths: Sequence[Path],
    folder: Path | None = None,
    lists: Path | None = None,
    known: Mapping[str, ListType] | None = None,
    about: str | None = None,
    samples: Mapping[str, Path] | None = None,
    schemas: Mapping[str, StreamSchema] | None = None,
    published: Mapping[str, PublishedFeature] | None = None,
    *,
    is_named_first: bool = False,
) -> RuleBundle:
    """Read the rules of these files and folders against the streams of ``folder`` and the lists of ``lists``; lists
    missing there are taken from ``known``, and features missing in the files from ``published``.

    ``about``: only the rule of that name, and those whose scores it adds, if that rule exists; problems of
    other rules are ignored. ``samples``: by stream, a file with a JSON event on each line, in which keys are counted.
    ``schemas``: of a running app, used instead of the files in ``folder``. ``is_named_first``: a decision policy in a
    file that is named itself takes the place of that with its name in a folder.
    Raises ``InputError`` if there is no rule.
    """
    schemas = load_streams(folder) if schemas is None else dict(schemas)
    listed, list_problems = read_lists(lists)
    for path in paths:
        if not path.exists():
            raise InputError(f"rules: no such file or folder: {path}")
    documents, problems = _load_about(about, paths), list[Problem]()
    if not documents:
        documents, problems = _read(paths)
    policies = [] if about is not None else _read_policies(paths, is_named_first=is_named_first)
    loaded = [one for path in dict.fromkeys(paths) for one in load_features(path)]
    if not documents and not problems and not policies and not loaded:
        raise InputError(f"rules: no *.yaml in {', '.join(map(str, paths))}; name files or folders with rules")
    list_types = {**(known or {}), **{one.head.list: one.head.type for one in listed}}
    features = check_published(loaded, schemas, lists=list_types)
    report = check_rules(
        documents,
        schemas,
        lists=list_types,
        samples={stream: _read_sample(stream, path, schemas) for stream, path in (samples or {}).items()},
        published={**(published or {}), **features.features},
    )
    decisions = check_policies(policies, documents, schemas)
    of_features = [] if about is not None else features.problems  # else those that the rule names are missing
    found = tuple(sorted([*problems, *list_problems, *of_features, *report.problems, *decisions.problems]))
    warnings = tuple(sorted([*report.warnings, *features.warnings, *decisions.warnings]))
    others = (decisions.policies, features.features)
    return RuleBundle(schemas, report.rules, report.costs, found, tuple(listed), warnings, *others)


def _read_sample(stream: str, path: Path, schemas: Mapping[str, StreamSchema]) -> list[Mapping[str, object]]:
    """Return the first ``_SAMPLE_EVENTS`` events of a sample."""
    if stream not in schemas:
        raise InputError(f"sample: there is no stream {stream}; there are {', '.join(schemas)}")
    events: list[Mapping[str, object]] = []
    number = 0
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(islice(lines, _SAMPLE_EVENTS), 1):
                event = json.loads(line) if line.strip() else {}
                if not isinstance(event, dict):
                    raise InputError(f"sample: {path}:{number}: not a JSON object; write one event on each line")
                events += [event] if event else []
    except json.JSONDecodeError as error:
        raise InputError(f"sample: {path}:{number}: {error}; write one event on each line") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"sample: {path}: {error}") from None
    return events


def _read(paths: Iterable[Path], naming: Collection[str] | None = None) -> tuple[list[LoadedRule], list[Problem]]:
    documents, problems = [], []
    for path in dict.fromkeys(paths):
        loaded, faults = load_path(path, naming=naming)
        documents += loaded
        problems += faults
    return documents, problems


def _read_policies(paths: Iterable[Path], *, is_named_first: bool) -> list[LoadedPolicy]:
    found = [(path.is_file(), one) for path in dict.fromkeys(paths) for one in load_policies(path)]
    named = {one.policy.decision_policy for alone, one in found if is_named_first and alone and one.policy is not None}
    return [one for alone, one in found if alone or one.policy is None or one.policy.decision_policy not in named]


def _load_about(name: str | None, paths: Sequence[Path]) -> list[LoadedRule]:
    """Documents of a rule and of those whose scores it adds; none when there is no rule of the name.

    YAML takes its time, so first only files are read that have the names in their text. A name that is written in
    another way (escaped) is found when all are read.
    """
    if name is None:
        return []
    own = _with_added_scores(name, _read(paths, {name})[0])
    if more := _missing_score_rules(own):
        own = _with_added_scores(name, _read(paths, {name, *more})[0])
    return own if own and not _missing_score_rules(own) else _with_added_scores(name, _read(paths)[0])


def _with_added_scores(name: str, documents: Sequence[LoadedRule]) -> list[LoadedRule]:
    rules = {one.rule.id: one.rule for one in documents if one.rule is not None}
    wanted = {name, *_score_rules(rules[name])} if name in rules else set()
    return [one for one in documents if one.rule is not None and one.rule.id in wanted]


def _missing_score_rules(own: Sequence[LoadedRule]) -> set[str]:
    """Return the ids of rules whose scores are added, and that are not in ``own``."""
    rules = {one.rule.id: one.rule for one in own if one.rule is not None}
    return {added for rule in rules.values() for added in _score_rules(rule)} - rules.keys()


def _score_rules(rule: Rule) -> Iterable[str]:
    return rule.score.of if rule.score is not None else ()
