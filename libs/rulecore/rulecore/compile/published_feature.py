"""Compiles a published feature, and puts the definitions of published features into the rules that name them.

A published feature is compiled as the only feature of a paused rule, which keeps its state and is never evaluated. So
all that holds for a feature of a rule holds for it too, and both share one state if they are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.control_keys import FEATURE_KEY
from rulecore.documents.published_feature import PublishedFeature
from rulecore.documents.rule import Rule, RuleMode, RuleOutcome, Severity
from rulecore.errors import ExpressionError, RuleSetError
from rulecore.language import ListType
from streamcore.schema import StreamSchema

#: Where an error is in the rule, and in the document of the feature.
_PLACES: Final = (("features.0.name", "feature"), ("features.0.", ""), ("group_by", "by"))


def compile_published(
    feature: PublishedFeature, streams: Mapping[str, StreamSchema], limits: RuleLimits, lists: Mapping[str, ListType]
) -> CompiledRule:
    """Check the feature against its stream, and return the paused rule that keeps its state. Raise ``RuleError`` if it
    is invalid."""
    rule = Rule.model_construct(
        version=feature.version,
        owner=feature.owner,
        description=feature.description,
        on=feature.on,
        group_by=feature.by,
        features=(feature.entry,),
        order=feature.order,
        where=f"{feature.feature} is null",  # paused: it is never evaluated
        then=RuleOutcome(severity=Severity.LOW, message=feature.feature),
        mode=RuleMode.PAUSED,
        id=FEATURE_KEY + feature.feature,  # no rule's id has a slash
    )
    try:
        return compile_rule(rule, streams, limits, lists)
    except ExpressionError as error:
        error.field = _own_place(error.field)
        raise
    except RuleSetError as error:
        raise RuleSetError(_own_place(str(error))) from None


def _own_place(text: str) -> str:
    """Return the text with the place in the document of the feature, for one in that of the rule."""
    for place, own in _PLACES:
        if text.startswith(place):
            return own + text.removeprefix(place)
    return text
