"""How a ledger is reached: one interface, two implementations.

A request is a JSON text that begins with ``{"op":"NAME"``; an answer is the JSON text that the HTTP API has
for it. ``_flat.py`` hands both to the library in this process, ``_http.py`` to a gateway.
"""

from __future__ import annotations

import abc
from typing import Callable, Optional

__all__ = ["Transport"]


class Transport(abc.ABC):
    """Requests in, answers out. Any number of threads and event loops may use one at once."""

    #: What was opened.
    url: Optional[str]

    #: Whether leases of claims are renewed without us.
    renews: bool

    #: Whether the operations that only the library has are there: declare, export, import...
    embedded: bool

    @abc.abstractmethod
    def ask(self, request: bytes) -> str:
        """One request and its answer. Blocks for the time that the request itself names."""

    def ask_waiting(self, request: bytes) -> str:
        """The same for a request that may wait long. Ctrl-C ends the wait."""
        return self.ask(request)

    def recall(self, request: bytes) -> Optional[str]:
        """The answer if memory has it. None: ask. Never blocks."""
        return None

    @abc.abstractmethod
    async def ask_async(self, request: bytes, abandoned: Optional[Callable[[str], None]] = None) -> str:
        """The same as :meth:`ask` without blocking the event loop, and without a thread.

        If the caller is cancelled, an answer that comes nevertheless is handed to ``abandoned``.
        """

    @abc.abstractmethod
    async def settle(self, request: bytes) -> str:
        """The same for what must be done even if the caller is cancelled: it is cancelled afterwards."""

    @abc.abstractmethod
    async def pause(self, seconds: float) -> None:
        """Sleeps, in the event loop that runs. A cancellation waits for its end."""

    @abc.abstractmethod
    def close(self) -> None:
        """Lets go. Twice is harmless."""
