"""Duplicate effects, and duplicate spend: idempotent tools with a detector of loops and a budget."""

import dataclasses
from typing import Any, Dict

import semel

semel.use("memory:")


# ---- a tool that would have to check before it acts does not have to any more


@dataclasses.dataclass
class ToolResult:
    success: bool
    message: str


@semel.once
def create_user(user_id: str, email: str, plan: str = "trial") -> ToolResult:
    """The model never sees a "duplicate" error, so it does not retry."""
    print(f"inserting {user_id}")
    return ToolResult(True, f"User {user_id} created with plan={plan}.")


# ---- a notification: what it says and to whom is its identity, whatever else changes


@semel.once(ignore=["request_id", "timestamp"], window="1h", loop={"warn": 3, "block": 5})
def send_alert(recipient: str, subject: str, body: str, request_id: str = "", timestamp: float = 0) -> Dict[str, Any]:
    print(f"[EMAIL] -> {recipient}: {subject}")
    return {"sent": True}


with semel.scope("acme/ops/session-1"):
    assert create_user("u1", "ann@example.com") == create_user("u1", email="ann@example.com", plan="trial")
    send_alert("ann", "disk full", "95%", request_id="1", timestamp=1.5)
    send_alert("ann", "disk full", "95%", request_id="2", timestamp=2.5)
    for turn in range(5):  # an agent that does not read what it is told
        try:
            send_alert("ann", "disk full", "95%")
        except semel.LoopDetected as loop:
            print(loop.for_model().split(" (")[0])
            break

# ---- the same guards alone, around any dispatch

detector = semel.LoopDetector(repeats=3, max_cycle=2)
budget = semel.Budget(calls=10, cost="0.50")


def execute_tool_safely(name: str, args: Dict[str, Any]) -> str:
    match = detector.record(name, args)
    if match:
        return f"stop: {match.detector}, {match.count} times"
    with budget.spend(cost="0.05"):
        return f"{name} executed"


for _ in range(3):
    print(execute_tool_safely("lookup", {"id": 1}))
print("spent:", budget.spent["spent"])

# Output:
# inserting u1
# [EMAIL] -> ann: disk full
# The same call returned the same result 5 times. Use the result you have, change the arguments, or stop.
# lookup executed
# lookup executed
# stop: repeat, 3 times
# spent: 0.1
