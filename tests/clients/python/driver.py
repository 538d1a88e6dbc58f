"""Clients of Python that take commands.

    driver.py SOCKET KIND...

Whoever connects to the socket says in the first line which kind (see kinds.py) and gets a process of
its own, whose number is the first line that comes back. Then each line is a JSON object:

    {"id": 1, "do": "open", "target": {...}, "timeout": SECONDS or null}
    {"id": 2, "do": "call", "tool": "...", "arguments": {...}}
    {"id": 3, "do": "cancel", "call": 2}
    {"id": 4, "do": "close"}

and is answered, when it is over, with {"id": ...} and `seen` (what a model gets of a call), `error`
(what was raised), `troubles` (of a close: what was logged as an error or raised in the background).
A process that has imported much is forked, because importing takes seconds.
"""

import asyncio
import importlib
import json
import logging
import os
import signal
import socket
import sys

from kinds import KINDS, MODULES


def leaves(error: BaseException) -> list[BaseException]:
    """The exceptions in a group of groups."""
    inner = getattr(error, "exceptions", None)
    return [leaf for one in inner for leaf in leaves(one)] if inner else [error]


def text_of(error: BaseException) -> str:
    return "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error))


class Troubles(logging.Handler):
    """What somebody who looks at the log, or at standard error, would see."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record):
        raised = f" ({text_of(record.exc_info[1])})" if record.exc_info and record.exc_info[1] else ""
        self.texts.append(record.getMessage().split("\n")[0] + raised)

    def raised(self, loop, context):
        error = context.get("exception")
        self.texts.append(text_of(error) if error else context["message"])


class Client:
    """One client. Its session lives in a task of its own: what entered it has to leave it."""

    def __init__(self, kind, writer):
        self.kind, self.writer = kind, writer
        self.troubles = Troubles()
        logging.getLogger().addHandler(self.troubles)
        asyncio.get_running_loop().set_exception_handler(self.troubles.raised)
        self.calls: dict[int, asyncio.Task] = {}

    async def session(self, target, timeout):
        async with KINDS[self.kind](target, timeout) as call:
            self.call = call
            self.opened.set_result(None)
            await self.leave.wait()

    async def do_open(self, command):
        self.opened, self.leave = asyncio.get_running_loop().create_future(), asyncio.Event()
        self.task = asyncio.create_task(self.session(command["target"], command["timeout"]))
        await asyncio.wait([self.task, self.opened], return_when=asyncio.FIRST_COMPLETED)
        if self.task.done():
            await self.task
        return {}

    async def do_call(self, command):
        self.calls[command["id"]] = asyncio.create_task(self.call(command["tool"], command["arguments"]))
        return {"seen": await self.calls[command["id"]]}

    async def do_cancel(self, command):
        self.calls[command["call"]].cancel()
        return {}

    async def do_close(self, command):
        self.leave.set()
        try:
            await self.task
        except BaseException as error:
            self.troubles.texts.append(text_of(error))
        for call in self.calls.values():
            call.cancel()
        await asyncio.gather(*self.calls.values(), return_exceptions=True)
        return {"troubles": self.troubles.texts}

    async def obey(self, command):
        try:
            answer = await getattr(self, f"do_{command['do']}")(command)
        except (Exception, asyncio.CancelledError) as error:
            answer = {"error": text_of(error) or type(error).__name__}
        self.writer.write(json.dumps({"id": command["id"], **answer}).encode() + b"\n")


async def serve(kind, connection):
    reader, writer = await asyncio.open_connection(sock=connection)
    writer.write(json.dumps({"pid": os.getpid()}).encode() + b"\n")
    client, tasks = Client(kind, writer), set()
    while line := await reader.readline():
        task = asyncio.create_task(client.obey(json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


def main(path, kinds):
    for module in {module for kind in kinds for module in MODULES[kind]}:
        importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    door = socket.socket(socket.AF_UNIX)
    door.bind(path)
    door.listen(64)
    while True:
        connection, _ = door.accept()
        if os.fork() == 0:
            door.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            kind = b""
            while not kind.endswith(b"\n"):
                kind += connection.recv(1)
            connection.setblocking(False)
            os.setpgid(0, 0)
            asyncio.run(serve(kind.decode().strip(), connection))
            os._exit(0)
        connection.close()


main(sys.argv[1], sys.argv[2:])
