"""Fresh and replayed calls a second through the decorator, beside packages of the same purpose.

    python compare.py [--json] [--full] [URL...]

The URLs are ledgers of Semel (default: memory: and a file). The others are measured with those of their
stores that need no server. A figure is the best of three rounds, since whatever else the machine does only
makes it worse.
"""

import argparse
import asyncio
import contextvars
import json
import os
import tempfile
import threading
import time
from typing import Any, Awaitable, Callable, Dict, Optional

import semel

result: Dict[str, str] = {"status": "charged", "id": "ch_123"}


class Bench:
    def __init__(self, as_json: bool, full: bool) -> None:
        self.as_json = as_json
        self.scale = 4 if full else 1
        self.number = 0

    def tell(self, who: str, what: str, calls: int, seconds: float) -> None:
        rate = calls / seconds
        if self.as_json:
            print(json.dumps({"bench": "python", "metric": f"{who}, {what}", "value": round(rate), "unit": "1/s"}))
        else:
            print(f"  {who:28} {what:28} {rate:10,.0f} /s", flush=True)

    def fresh(self, n: int) -> int:
        self.number += n
        return self.number - n

    def threads(self, who: str, what: str, callers: int, n: int, call: Callable[[int], Any], fresh: bool) -> None:
        best = float("inf")
        each = max(1, n * self.scale // callers)
        for _ in range(3):
            base = self.fresh(each * callers) if fresh else 0

            def work(at: int) -> None:
                for i in range(each):
                    call(base + at * each + i if fresh else -1)

            begin = time.perf_counter()
            if callers == 1:
                work(0)
            else:
                threads = [
                    threading.Thread(target=contextvars.copy_context().run, args=(work, at))
                    for at in range(callers)
                ]
                for t in threads:
                    t.start()
                for t in threads:
                    t.join()
            best = min(best, time.perf_counter() - begin)
        self.tell(who, what, each * callers, best)

    def tasks(
        self, who: str, what: str, callers: int, n: int, call: Callable[[int], Awaitable[Any]], fresh: bool
    ) -> None:
        each = max(1, n * self.scale // callers)

        async def main() -> float:
            best = float("inf")
            for _ in range(3):
                base = self.fresh(each * callers) if fresh else 0

                async def work(at: int) -> None:
                    for i in range(each):
                        await call(base + at * each + i if fresh else -1)

                begin = time.perf_counter()
                await asyncio.gather(*(work(at) for at in range(callers)))
                best = min(best, time.perf_counter() - begin)
            return best

        self.tell(who, what, each * callers, asyncio.run(main()))


def ours(bench: Bench, url: str) -> None:
    ledger = semel.open(url, wait=60)
    who = "semel " + url.split(":")[0]
    n = 20000 if url.startswith("memory") else 4000

    @semel.once(ledger=ledger, loop=False)
    def charge(order: int, amount: int = 1000, currency: str = "usd") -> Dict[str, str]:
        return result

    @semel.once(ledger=ledger, loop=False, name="acharge")
    async def acharge(order: int, amount: int = 1000, currency: str = "usd") -> Dict[str, str]:
        return result

    with semel.scope(f"bench/python/{time.time_ns()}"):
        charge(-1)
        asyncio.run(_one(acharge))
        for callers in (1, 64):
            bench.threads(who, f"replay, {callers} threads", callers, 100000, charge, False)
            bench.threads(who, f"fresh, {callers} threads", callers, n if callers > 1 else n // 4, charge, True)
        for callers in (1, 64):
            bench.tasks(who, f"replay, {callers} tasks", callers, 100000, acharge, False)
            bench.tasks(who, f"fresh, {callers} tasks", callers, n if callers > 1 else n // 4, acharge, True)
        bench.tasks(who, "fresh, 32 tasks", 32, n, acharge, True)
    ledger.close()


async def _one(call: Callable[[int], Awaitable[Any]]) -> None:
    await call(-1)


def agent_ledger(bench: Bench) -> None:
    import agent_ledger as al

    ledger = al.EffectLedger(al.EffectLedgerOptions(store=al.MemoryStore()))

    async def handler(effect: Any) -> Dict[str, str]:
        return result

    async def call(order: int) -> Any:
        args = {"order": order, "amount": 1000, "currency": "usd"}
        return await ledger.run(al.ToolCall(workflow_id="bench", tool="charge", args=args), handler=handler)

    bench.tasks("agent-ledger memory", "fresh, 32 tasks", 32, 3000, call, True)
    bench.tasks("agent-ledger memory", "replay, 32 tasks", 32, 3000, call, False)


def idemkit(bench: Bench) -> None:
    import idemkit as ik

    @ik.idempotent(backend=ik.InMemoryBackend(), config=ik.MethodConfig(key_fields=["order", "amount"]))
    async def charge(*, order: int, amount: int = 1000) -> Dict[str, str]:
        return result

    async def call(order: int) -> Any:
        return await charge(order=order)

    bench.tasks("idemkit memory", "fresh, 32 tasks", 32, 1500, call, True)
    bench.tasks("idemkit memory", "replay, 32 tasks", 32, 1500, call, False)


def call4agents(bench: Bench, folder: str) -> None:
    import call4agents as c4a

    c4a.init(os.path.join(folder, "c4a.sqlite"))

    @c4a.effect
    def charge(order: int, amount: int = 1000) -> Dict[str, str]:
        return result

    with c4a.run("bench"):
        bench.threads("call4agents sqlite", "fresh, 1 threads", 1, 1000, charge, True)
        bench.threads("call4agents sqlite", "replay, 1 threads", 1, 5000, charge, False)


def main(given: Optional["list[str]"] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("url", nargs="*")
    options = parser.parse_args(given)
    bench = Bench(options.json, options.full)
    with tempfile.TemporaryDirectory() as folder:
        for url in options.url or ["memory:", f"sqlite:{folder}/bench.db"]:
            ours(bench, url)
        for other in (agent_ledger, idemkit, lambda b: call4agents(b, folder)):
            try:
                other(bench)
            except ImportError as error:
                print(f"# {error}")


if __name__ == "__main__":
    main()
