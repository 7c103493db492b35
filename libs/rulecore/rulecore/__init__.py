"""Rules: their language, their documents, and the kernel that evaluates them.

This package is the door: load rule documents, check and test them, back-test them, explain a firing, and make the
kernel that a stream app runs. Public are the names in ``__all__``. All modules and subpackages are private: they may
change at any time, and only the packages of this repository import them. The names are loaded when they are used, so
``import rulecore`` loads neither Polars, Arrow nor NumPy. The rules know neither Spark nor Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamcore.lazy_names import lazy_names

if TYPE_CHECKING:
    from rulecore.backtest.backtest import Backtest, BacktestReport, BacktestSide, EventBatch
    from rulecore.check import CheckReport, RuleCost, check_rules
    from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
    from rulecore.documents.loading import LoadedRule, load_path, load_text
    from rulecore.documents.rule import Rule
    from rulecore.errors import DocumentError, ExpressionError, ExpressionTypeError, ListError, RuleError, RuleSetError
    from rulecore.explain.explanation import ExplainQuestion, Explanation
    from rulecore.explain.rule import explain_rule
    from rulecore.factory import RulesFactory
    from rulecore.lists.files import list_types, load_lists
    from rulecore.settings import DispatchSettings, GroupSettings, ListLimits, RulesConfig
    from rulecore.streams import RuleStream
    from rulecore.testing.in_process import run_in_process
    from rulecore.testing.rule_tests import TestResult, run_tests

#: The modules that define the public names, loaded when a name is first used.
_MODULES = {
    "rulecore.backtest.backtest": "Backtest BacktestReport BacktestSide EventBatch",
    "rulecore.check": "CheckReport RuleCost check_rules",
    "rulecore.compile.rule": "CompiledRule RuleLimits compile_rule",
    "rulecore.documents.loading": "LoadedRule load_path load_text",
    "rulecore.documents.rule": "Rule",
    "rulecore.errors": "DocumentError ExpressionError ExpressionTypeError ListError RuleError RuleSetError",
    "rulecore.explain.explanation": "ExplainQuestion Explanation",
    "rulecore.explain.rule": "explain_rule",
    "rulecore.factory": "RulesFactory",
    "rulecore.lists.files": "list_types load_lists",
    "rulecore.settings": "DispatchSettings GroupSettings ListLimits RulesConfig",
    "rulecore.streams": "RuleStream",
    "rulecore.testing.in_process": "run_in_process",
    "rulecore.testing.rule_tests": "TestResult run_tests",
}

__all__ = [
    "Backtest",
    "BacktestReport",
    "BacktestSide",
    "CheckReport",
    "CompiledRule",
    "DispatchSettings",
    "DocumentError",
    "EventBatch",
    "ExplainQuestion",
    "Explanation",
    "ExpressionError",
    "ExpressionTypeError",
    "GroupSettings",
    "ListError",
    "ListLimits",
    "LoadedRule",
    "Rule",
    "RuleCost",
    "RuleError",
    "RuleLimits",
    "RuleSetError",
    "RuleStream",
    "RulesConfig",
    "RulesFactory",
    "TestResult",
    "check_rules",
    "compile_rule",
    "explain_rule",
    "list_types",
    "load_lists",
    "load_path",
    "load_text",
    "run_in_process",
    "run_tests",
]

_MODULE_BY_NAME, _get_attribute, _list_names = lazy_names(__name__, _MODULES)
if not TYPE_CHECKING:  # for a type checker, the imports above are all that there is
    __getattr__, __dir__ = _get_attribute, _list_names
