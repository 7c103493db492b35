"""Lists: allow lists, deny lists and values per entity, which rules use by name.

A list changes without compiling any rule again: ``list_columns`` replaces the uses of lists in a rule's conditions by
columns, and ``fill_columns`` fills these once per cut from the current contents (``content``). Lists are published as
control records, a head and parts named by their digest (``records``, ``store``), and are written as files (``files``).
"""
