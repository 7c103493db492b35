"""Feature rules: conditions that read an event and the past of its key.

For each event the group computes the value of each feature from what arrived before, and evaluates the conditions of
all rules on the event and these values at once. A feature is stored once, whatever the number of rules that read it.
The values depend on the order in which events arrive, which a replay repeats, and not on how the input is cut. The
package knows no wall clock and no other shard.
"""
