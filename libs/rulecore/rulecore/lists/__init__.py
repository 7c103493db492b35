"""Lists: allow and deny lists, and values per entity, that rules ask by name.

A list changes without any rule being compiled again: what a rule asks of lists is lifted out of its conditions into
columns (``columns``), which are filled once per batch of events from the contents that hold at that moment
(``content``). Lists come as control records, a head and parts named by what they hold (``records``, ``store``), and
are written as files (``files``).
"""

from rulecore.lists.columns import ListColumn, ListColumnKind, lift, with_list_columns
from rulecore.lists.content import Entries, ListContent
from rulecore.lists.plain import plain

__all__ = ["Entries", "ListColumn", "ListColumnKind", "ListContent", "lift", "plain", "with_list_columns"]
