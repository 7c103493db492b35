"""The keyed stage that computes features of other keys than their rule's, in front of the rules kernel.

Each shard of it has the past of some cards, merchants and devices, and sends the values at each event to the shards of
the rules that read them, in the same cut. It evaluates no condition but the part of a rule's ``where`` that reads no
feature, so that only events are sent at which the rule may fire. Suppression, trials, decisions and alerts are in the
rules kernel, which joins the values to its events. A value depends on the events of its own shard alone, in their
order, so on nothing that another number of shards changes.

Limits: it holds a copy of the rule set and of the lists, and has a state store of its own, so an app has it by a
setting, and a checkpoint gets it by a savepoint.
"""
