"""One keyword on a tool: the examples of an agent framework that had it inside its loop, as they are here.

There the memory ended with the run. Here it is the ledger: a run that is resumed by another process, from
a checkpoint or not, replays.
"""

from typing import Any, Dict, List

import semel

semel.use("memory:")


@semel.tool(idempotent=True)
def transfer(from_acct: str, to_acct: str, amount: float) -> Dict[str, Any]:
    """Transfer funds. Re-fires within a run return the recorded receipt."""
    print(f"transferring {amount}")
    return {"from": from_acct, "to": to_acct, "amount": amount}


@semel.tool(idempotent=True)
def book_flight(flight_id: str, customer_id: str) -> Dict[str, str]:
    print(f"booking {flight_id}")
    return {"booking": f"{flight_id}/{customer_id}"}


@semel.tool(idempotent=True)
def submit_po(vendor_id: str, line_items: List[Dict[str, Any]]) -> Dict[str, str]:
    print(f"ordering from {vendor_id}")
    return {"po": "PO-1"}


@semel.tool(idempotent=True)
def email_cfo(po_id: str, summary: str) -> str:
    print(f"mailing about {po_id}")
    return "sent"


with semel.scope("acme/buyer/run-1"):
    first = transfer("A", "B", 100)
    assert transfer(to_acct="B", from_acct="A", amount=100.0) == first  # the same call
    transfer("A", "B", 200)  # a different one
    assert book_flight("LH400", "ann") == book_flight("LH400", "ann")
    for _ in range(3):  # the agent iterates; the order ships once
        po = submit_po("acme", [{"sku": "A1", "qty": 2}])
        email_cfo(po["po"], "two of A1")

# A checkpointer resumes the run elsewhere: the record goes with it.
checkpoint = semel.default().export("acme/buyer/run-1")
semel.use("memory:")
semel.default().import_(checkpoint)
with semel.scope("acme/buyer/run-1"):
    print("resumed:", submit_po("acme", [{"sku": "A1", "qty": 2}]))

# Another run is another scope.
with semel.scope("acme/buyer/run-2"):
    email_cfo("PO-1", "two of A1")

# Output:
# transferring 100
# transferring 200
# booking LH400
# ordering from acme
# mailing about PO-1
# resumed: {'po': 'PO-1'}
# mailing about PO-1
