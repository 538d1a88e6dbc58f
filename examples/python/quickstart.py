"""A tool that survives kill -9, in two minutes.

    pip install ./bindings/python
    python examples/python/quickstart.py            # it charges, and is killed in the middle of it
    python examples/python/quickstart.py            # nobody knows whether it was charged: it says so
    python examples/python/quickstart.py ch_1       # somebody looked: it was. From now on it is replayed
    python examples/python/quickstart.py
"""

import os
import signal
import sys
from typing import Dict

import semel


@semel.once(class_="irreversible")
def charge(order: str, amount: int) -> Dict[str, str]:
    print(f"charging {amount} for {order}; the provider gets the key {semel.current().key[:6]}...", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)  # the worst moment: it may have been charged
    return {"id": "ch_1"}


with semel.scope("order-123"):
    try:
        print("receipt:", charge("A-17", amount=1000))
    except semel.InDoubt as doubt:
        print(f"in doubt: {doubt.message}")
        if len(sys.argv) > 1 and doubt.effect:
            ledger = semel.default()
            ledger.resolve(
                doubt.effect, "applied", evidence="the provider's dashboard", value={"id": sys.argv[1]}
            )
            print("receipt:", charge("A-17", amount=1000))
