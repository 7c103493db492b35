"""Lists: allow and deny lists, and values per entity, that rules ask by name.

A list changes without any rule being compiled again: the questions that a rule asks of lists are lifted out of its
conditions (``asked``) into columns, which are filled once per batch of events (``columns``) from the contents that hold
at that moment (``content``). Lists come as control records, a head and parts named by their content (``records``,
``store``), and are written as files (``files``).
"""
