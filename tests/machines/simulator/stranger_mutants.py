"""Guards against strangers taken out, by name."""

from __future__ import annotations

from typing import Any, Final

from omidpy.wire.messages import CommitRequest
from tests.machines.simulator.mutants import BUSY, _Machine
from tests.machines.simulator.simulation import Mutant, Parts, Patch
from tests.machines.simulator.strangers import DEEDS
from tso.serving import connection

STRANGE: Final = BUSY._replace(
    strangers=(2,),
    strange_pauses_s=(0.2,),
    strange_lines=(3,),
    late_message_shares=(0.0,),
    repeat_shares=(0.0,),
    ages_ms=(900_000,),
    pauses_s=(0.2,),
)
"""Strangers, of whom alone something could go wrong."""


class DecidesForStrangers(_Machine):
    """Lets everybody commit what another began."""

    def _is_own(self, start_ts: int, owner: int) -> bool:
        del start_ts, owner
        return True


class DecidesWhatIsNobodys(_Machine):
    """Lets a transaction commit that nobody has begun yet."""

    def _commit(self, ticket: Any, request: CommitRequest, effects: list[Any]) -> None:
        if self._engine.owner(request.start_ts):
            super()._commit(ticket, request, effects)
        else:
            self._decide(ticket, request, self._client)


class _Never(Exception):
    """What nobody raises."""


STRANGER_MUTANTS: Final[dict[str, Mutant]] = {
    "another's commit decided": Mutant(
        Parts(machine=DecidesForStrangers),
        "lost update|I8",
        STRANGE._replace(strange_deeds=(("claim",),), thinking_shares=(0.1,), thoughts_s=(2.0,)),
    ),
    "never begun, and decided": Mutant(
        Parts(machine=DecidesWhatIsNobodys),
        "I8|I1|I2",
        STRANGE._replace(strange_deeds=(("early",),), timestamps=("incremental",)),
    ),
    "noise that ends the oracle": Mutant(
        Parts(patches=(Patch(connection, "RemoteProtocolError", _Never),)),
        "error|invariant",
        STRANGE._replace(strange_deeds=(("noise",),)),
    ),
}
"""By name."""

assert {"claim", "early", "noise"} <= set(DEEDS), "a focus draws from what there is"
