"""State that is larger than memory: the rows of keys that were not used lately are in files on the local disk.

The package exists so that the memory of a worker bounds the keys in use, and not the keys that there are. It moves
whole keys of an operator: ``evict`` writes their rows to a sorted run and forgets them, ``recall`` loads them before a
cut uses them. It promises that no output depends on which keys are cold. It does not know operators: each one that can
page gives its rows by ``PagedState``.
"""
