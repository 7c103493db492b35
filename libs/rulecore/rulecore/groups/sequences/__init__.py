"""Sequences: events of one key that follow one another, and events that must not come between them or afterwards.

The exact meaning of a rule of this kind. Its events are those of its stream that satisfy its common ``where``; they are
looked at key by key, *in the order of event time*, those of one time by (partition, offset).

*When.* An event is looked at when the watermark has passed it (event time < watermark): then all events before it are
known. Until then it waits, if it satisfies a condition of a step or ``without``; others are not kept. So the result
depends neither on the order of arrival within the watermark's disorder nor on how the input is cut. Events later than
the watermark are left out, as everywhere.

*Steps.* The rule's ``sequence`` is a pattern of ``streamcore.patterns``, whose package docstring has the exact meaning
of contiguity, quantifiers, groups, conditions over earlier events and skip strategies. A partial match ("partial")
begins with each event that satisfies the first step. Without further entries a step takes the next event that satisfies
it, and no other: events between are passed over (skip till next match). A step with ``times: n`` takes n events one
after the other. One event may begin a partial and be taken by others that wait for it, by each once.

*Times*, all inclusive ("at most"), other than in the pattern. ``within`` of the rule: from a partial's first event to
its last. ``within`` of a step: from the last event of the step before it to its own last event; of the first step: from
its own first event to its last. A partial whose time is over is gone; with ``timed_out: emit`` it fires as well.

*Without.* Between two steps: an event that satisfies the condition ends every partial that has all of the step before
and nothing yet of the step after. (In a pattern, it also counts between the events of the step before.) If it satisfies
the step after as well, ``without`` wins. It may begin a new partial. At the end: a partial with all of its steps is
*pending* until ``within`` of the ``without`` is over, and an event that satisfies the condition behind its last event
in the order above, at most so long after it, ends it. Otherwise it matches when the watermark has passed its end, and
the end is the time of the match. Its time is not part of the rule's ``within``.

*Limits.* A key keeps at most ``GroupSettings.partials`` partials a sequence, pending ones included; of more, those that
began first are dropped. At most ``GroupSettings.events`` events of a key wait; those that wait already stay,
and of the new ones of a cut the latest in the order above are rejected. The first limit depends on the events alone,
the second on the cut as well (the same cut always rejects the same). Both are counted, see ``SequenceGroup.metrics``.

*State* belongs to the structure of a sequence (stream, group, conditions in normal form, times, limits of time, skip),
not to the rule: rules with one structure share it, and severity, message, names of steps and mode may change without
losing it. Another structure begins anew. A value that a new message names is null for events taken before.

*Incomplete.* A new sequence knows no earlier events. For ``within`` after that, a match may lack the company of longer
ones that were missed (which could have discarded it), so alerts whose last event comes that soon are marked
``incomplete``.
"""
