"""Four eyes: proposals, approvals, policies; and who is asking."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from headgate.web.access.rights import ConsoleSession
from headgate.web.changes.propose import list_policies, list_proposals, list_signers
from headgate.web.context import ShownApp, TheApp, TheConsole, TheSession
from headgate.web.state.values import (
    GovernanceValue,
    GrantValue,
    ProposalOutcome,
    ProposalValue,
    SessionValue,
)

ROUTER = APIRouter(prefix="/api/v1", tags=["approvals"])
ProposalId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$", description="Id of the proposal.")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    why: Annotated[str, Field(max_length=1_000, description="The reason, signed with the rest.")] = ""
    wait_ms: Annotated[int, Field(ge=0, description="Longest wait for the app's answer.")] = 10_000


class NewProposal(_Body):
    """Rules to propose: all of them or none."""

    yaml: Annotated[str, Field(description="The rules' documents, as in a file.")] = ""
    delete: Annotated[tuple[str, ...], Field(max_length=1_000, description="Rules to delete.")] = ()
    emergency: Annotated[bool, Field(description="Count at once, for the hours of the policy.")] = False


class Decision(_Body):
    """The verdict of a person on a proposal."""

    verdict: Annotated[Literal["approve", "refuse"], Field(description="refuse closes the proposal.")] = "approve"


@ROUTER.get("/session")
def read_session(session: TheSession) -> SessionValue:
    """Return who is asking, and the roles."""
    return session_value(session)


@ROUTER.get("/apps/{app}/proposals")
def list_the_proposals(app: TheApp) -> tuple[ProposalValue, ...]:
    """List the proposals that wait for approvals, and those that count in an emergency."""
    return tuple(list_proposals(app.snapshot()))


@ROUTER.post("/apps/{app}/proposals")
def propose_rules(
    app: TheApp, body: NewProposal, console: TheConsole, session: TheSession, response: Response
) -> ProposalOutcome:
    """Propose rules in the name of the session, as `headgate rules propose` does. 202: it waits for approvals."""
    wait_ms = min(body.wait_ms, console.settings.limits.wait_ms)
    outcome = app.proposals.propose(body.yaml, body.delete, session, body.why, wait_ms, emergency=body.emergency)
    response.status_code = 200 if outcome.status == "accepted" else 202
    return outcome


@ROUTER.post("/apps/{app}/proposals/{proposal}/decision")
def decide_proposal(
    app: TheApp, proposal: ProposalId, body: Decision, console: TheConsole, session: TheSession, response: Response
) -> ProposalOutcome:
    """Approve or refuse a proposal in the name of the session. Who has proposed it cannot approve it."""
    wait_ms = min(body.wait_ms, console.settings.limits.wait_ms)
    outcome = app.proposals.decide(proposal, session, body.why, wait_ms, refuse=body.verdict == "refuse")
    response.status_code = 200 if outcome.status in ("accepted", "deleted") else 202
    return outcome


@ROUTER.get("/apps/{app}/governance")
def read_governance(app: TheApp) -> GovernanceValue:
    """Return the policies and the signers of an app."""
    return governance_value(app)


def governance_value(app: ShownApp) -> GovernanceValue:
    """Return the policies and the signers of an app."""
    snapshot = app.snapshot()
    return GovernanceValue(
        policies=tuple(list_policies(snapshot)),
        signers=tuple(list_signers(snapshot)),
        signs=app.proposals.key is not None,
    )


def session_value(session: ConsoleSession) -> SessionValue:
    """Return who is asking."""
    grants = tuple(
        GrantValue(role=one.role.value, apps=one.apps, tags=one.tags, owners=one.owners) for one in session.grants
    )
    return SessionValue(subject=session.subject, issuer=session.issuer, grants=grants)
