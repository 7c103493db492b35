"""The state of signers, policies and proposals: a value of the rule set, stored with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Final

import orjson

from rulecore.governance.documents import PolicyDocument, ProposalDocument, SignerDocument, read_text, write_text

_STATE, _PROPOSAL = "governance", "proposal:"
_NEVER: Final = 2**63 - 1


@dataclass(frozen=True)
class OpenProposal:
    """A proposal that waits for approvals. ``by``: the subject who has proposed it. ``needs``: how many approvals it
    needed then. ``approvals``: other subjects; ``keys``: the signers with whose keys these have signed, in the same
    order; those of an older state are not known. ``in_force``: whether its versions count already, for it is an
    emergency."""

    text: str
    by: str
    needs: int = 1
    approvals: tuple[str, ...] = ()
    in_force: bool = False
    keys: tuple[str, ...] = ()

    @cached_property
    def document(self) -> ProposalDocument:
        """The proposed changes."""
        return read_text(self.text, ProposalDocument)


@dataclass(frozen=True, slots=True)
class Emergency:
    """Versions that count without approval until ``until_ms``, exclusive.

    ``proposals``: their ids, the newest last. ``before``: the canonical JSON of the live version before them.
    ``over``: it has ended unapproved; no further one begins until somebody else approves.
    """

    versions: tuple[int, ...]
    until_ms: int
    proposals: tuple[str, ...]
    before: str | None = None
    over: bool = False


@dataclass(frozen=True, slots=True)
class Governance:
    """``app``: the name that every signed record has to name; that of the first signer. ``emergencies``: by rule.
    ``approved``: by rule, the digests of the contents that were approved, the newest last. ``closed``: until when the
    ids of decided proposals are remembered, by id. ``bound``: by rule, the tags whose policies hold whatever tags a new
    version has; an approved version has the last word."""

    app: str = ""
    signers: Mapping[str, SignerDocument] = field(default_factory=lambda: MappingProxyType({}))
    policies: Mapping[str, PolicyDocument] = field(default_factory=lambda: MappingProxyType({}))
    proposals: Mapping[str, OpenProposal] = field(default_factory=lambda: MappingProxyType({}))
    emergencies: Mapping[str, Emergency] = field(default_factory=lambda: MappingProxyType({}))
    approved: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    closed: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    bound: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))

    def next_end_ms(self) -> int:
        """Return when the next emergency ends, in epoch milliseconds."""
        return min((one.until_ms for one in self.emergencies.values() if not one.over), default=_NEVER)

    def records(self) -> Iterable[tuple[str, bytes]]:
        """Yield names and values for the state table; nothing without signers."""
        if not self.signers:
            return
        state = {
            "app": self.app,
            "signers": [write_text(one) for _, one in sorted(self.signers.items())],
            "policies": [write_text(one) for _, one in sorted(self.policies.items())],
            "emergencies": {
                rule: [list(one.versions), one.until_ms, list(one.proposals), one.before, one.over]
                for rule, one in self.emergencies.items()
            },
            "approved": {rule: list(digests) for rule, digests in self.approved.items()},
            "closed": dict(self.closed),
            "bound": {rule: list(tags) for rule, tags in self.bound.items()},
        }
        yield _STATE, orjson.dumps(state, option=orjson.OPT_SORT_KEYS)
        for name, one in self.proposals.items():
            keys = [list(one.keys)] if one.keys else []
            yield f"{_PROPOSAL}{name}", orjson.dumps([one.text, one.by, one.needs, one.approvals, one.in_force, *keys])

    @classmethod
    def restore(cls, records: Mapping[str, bytes]) -> Governance:
        """Return the state whose ``records()`` are among these."""
        if _STATE not in records:
            return cls()
        state = orjson.loads(records[_STATE])
        signers = [read_text(text, SignerDocument) for text in state["signers"]]
        policies = [read_text(text, PolicyDocument) for text in state["policies"]]
        proposals: dict[str, OpenProposal] = {}
        for name, value in records.items():
            if name.startswith(_PROPOSAL):
                text, by, needs, approvals, in_force, *keys = orjson.loads(value)
                proposals[name.removeprefix(_PROPOSAL)] = OpenProposal(
                    text, by, needs, tuple(approvals), in_force, tuple(keys[0] if keys else ())
                )
        return cls(
            app=state["app"],
            signers=MappingProxyType({one.signer: one for one in signers}),
            policies=MappingProxyType({one.policy: one for one in policies}),
            proposals=MappingProxyType(proposals),
            emergencies=MappingProxyType(
                {
                    rule: Emergency(tuple(versions), until_ms, tuple(proposals), *others)
                    for rule, (versions, until_ms, proposals, *others) in state["emergencies"].items()
                }
            ),
            approved=MappingProxyType({rule: tuple(digests) for rule, digests in state["approved"].items()}),
            closed=MappingProxyType(state["closed"]),
            bound=MappingProxyType({rule: tuple(tags) for rule, tags in state["bound"].items()}),
        )
