"""Patterns of events: what complex event processing finds in the events of a key, in their order.

The names and the exact meanings are those of Flink's CEP library; the few differences are listed below.

*Patterns* (``pattern``). Steps follow one another: ``next`` (strict contiguity: the very next event), ``followed_by``
(relaxed: the next event that satisfies the condition) or ``followed_by_any`` (any later one, each in another match).
``not_next`` and ``not_followed_by`` forbid events. A step may be ``optional`` and take several events: ``times``,
``times_or_more``, ``one_or_more``, between which the contiguity is relaxed, strict (``consecutive``) or any
(``allow_combinations``); ``greedy`` and ``until`` limit what else happens. A step may be a group of steps.

*Conditions* are simple (on the event alone; the owner of the rows evaluates them for whole columns) or iterative
(``expressions``: on the event and the events that the partial match has taken before).

*Time.* ``within`` is exclusive: an event that comes so long after the first event is too late. What ends by time ends
at its own deadline, in the order of the deadlines, so results do not depend on when time is advanced.

*After a match*, the skip strategy discards partial matches. With a strategy other than no skip, a match waits for the
partial matches that began before it. Of matches that begin with one event and are certain at one moment, the order is:
that of their partial matches, in which a way that takes an event is before one that passes it over.

*How it works.* ``graph`` builds states and edges from a pattern. ``automaton`` makes each state a table from bits, one
for each condition, to moves. ``engine`` runs the automaton over the events of each key, or of many keys at once where
that is simple (``column_run``), and ``match_store`` keeps partial matches and their events in columns and tables.

*Other than in Flink*, where each is a fault of Flink's (``libs/streamcore/tests/patterns/test_against_flink.py``):
rounds of a group after the first one begin by the group's contiguity, and give no match twice; a time limit of a
step holds when the step before is a loop, and one between the events of a step is between these; a match whose last
step repeats becomes pending by its last event; ``consecutive`` and the like of a group's first step are its own. What
Flink drops in silence (``optional`` for the first step of a group, a negation at the end of one) raises
``ConfigError``.
"""
