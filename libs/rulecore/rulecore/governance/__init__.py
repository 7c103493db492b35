"""Who has to agree to a rule: signers, policies, proposals and approvals, as signed records of the control topic.

Promises: what a rule set accepts is a function of its records and the clock alone, so the log proves for ever who has
proposed and who has approved each version; without a policy nothing changes. Limits: a policy is about rules, not about
lists and stream documents, and one admin alone can change it, which the log shows. Does not know how rules are stored.
"""
