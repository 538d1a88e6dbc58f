"""What agent-ledger's README shows, with Semel. docs/from-agent-ledger.md goes through it name by name."""

import asyncio
from typing import Any, Dict

import semel

ledger = semel.open_async("memory:")


# ---- quick start


async def charge_customer(effect: semel.Effect) -> Dict[str, str]:
    print(f"Charging {effect.args}...")
    return {"status": "charged", "id": "ch_123"}


async def quick_start() -> None:
    call = semel.Call(
        tool="stripe.charge", args={"amount": 1000, "currency": "usd"}, scope="order-123"
    )
    print("First call:", await ledger.run(call, charge_customer))
    print("Second call:", await ledger.run(call, charge_customer))


# ---- the pause button: a person approves exactly these arguments


async def deploy_to_k8s(effect: semel.Effect) -> str:
    return f"deployed {effect.args['image']}"


async def pause_button() -> None:
    approvals: "asyncio.Queue[str]" = asyncio.Queue()

    async def notify_slack(waiting: semel.AwaitingApproval) -> None:
        print("Approval needed for a deployment")
        await approvals.put(waiting.request or "")

    gated = semel.open_async("memory:", on_approval=notify_slack)
    await gated.declare("k8s.deploy", class_="write", approval=True)

    async def handle_button() -> None:
        await gated.approve(await approvals.get())

    button = asyncio.ensure_future(handle_button())
    call = semel.Call("k8s.deploy", {"image": "app:v2"}, scope="deploy-prod")
    print(await gated.run(call, deploy_to_k8s))
    await button
    await gated.close()


# ---- any executor: LangGraph, LangChain and others


async def send_email(to: str, subject: str, body: str) -> str:
    return f"Email sent to {to}"


async def execute_tool_safely(tool_name: str, args: Dict[str, Any], workflow_id: str) -> Any:
    """Wrap any async function with idempotency."""

    async def handler(_: semel.Effect) -> str:
        return await send_email(**args)

    return await ledger.run(semel.Call(tool_name, args, scope=workflow_id), handler)


# ---- only some fields identify a call


async def create_issue(effect: semel.Effect) -> int:
    print("creating an issue")
    return 17


async def custom_keys() -> None:
    await ledger.declare("github.create_issue", class_="write", key=["owner", "repo", "title"])
    for body in ("Details...", "Other details..."):  # body changes won't re-execute
        args = {"owner": "acme", "repo": "app", "title": "Bug", "body": body}
        print(await ledger.run(semel.Call("github.create_issue", args, scope="ticket-456"), create_issue))


# ---- fine-grained control


async def fine_grained(call: semel.Call) -> Any:
    begun = await ledger.begin(call)
    if not begun.fresh:
        return begun.value
    try:
        result = {"done": call.args}
        await ledger.commit(begun, result)
        return result
    except Exception as error:
        await ledger.commit(begun, error=error)
        raise


async def main() -> None:
    await quick_start()
    await pause_button()
    for _ in range(2):
        print(await execute_tool_safely(
            "send_email",
            {"to": "customer@example.com", "subject": "Order confirmed", "body": "..."},
            workflow_id="order-456",
        ))  # fmt: skip
    await custom_keys()
    call = semel.Call("ticket.close", {"id": 4}, scope="ticket-456")
    assert await fine_grained(call) == await fine_grained(call)
    await ledger.close()


asyncio.run(main())

# Output:
# Charging {'amount': 1000, 'currency': 'usd'}...
# First call: {'status': 'charged', 'id': 'ch_123'}
# Second call: {'status': 'charged', 'id': 'ch_123'}
# Approval needed for a deployment
# deployed app:v2
# Email sent to customer@example.com
# Email sent to customer@example.com
# creating an issue
# 17
# 17
