"""The clients of Python, each as it is used: opened on a target, then called.

    async with KINDS[name](target, timeout) as call:
        seen = await call(tool, arguments)

A target has `command` and `env`, or `url` and `headers`. The timeout, in seconds, is the client's own;
None leaves what it has by itself. `seen` is what the client hands to a model, as text. Frameworks run
their own agent with a model that makes the call and keeps what comes back.
"""

import contextlib
import json
from datetime import timedelta


def plain(items) -> str:
    """The content of a result, as a program would show it to its model."""
    return "\n".join(
        item.text if item.type == "text" else item.resource.text if item.type == "resource" else item.type
        for item in items
    )


def stdio_parameters(target):
    from mcp import StdioServerParameters

    command, *args = target["command"]
    return StdioServerParameters(command=command, args=args, env=target["env"])


@contextlib.asynccontextmanager
async def mcp1(target, timeout):
    from mcp import ClientSession
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamablehttp_client

    if "url" in target:
        transport = streamablehttp_client(target["url"], target["headers"])
    else:
        transport = stdio_client(stdio_parameters(target))
    limit = None if timeout is None else timedelta(seconds=timeout)
    async with transport as (reader, writer, *_), ClientSession(reader, writer) as session:
        await session.initialize()

        async def call(tool, arguments):
            return plain((await session.call_tool(tool, arguments, limit)).content)

        yield call


@contextlib.asynccontextmanager
async def mcp2(target, timeout):
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    async with contextlib.AsyncExitStack() as stack:
        if "url" in target:
            limits = httpx2.Timeout(30, read=300)
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=target["headers"], timeout=limits))
            transport = streamable_http_client(target["url"], http_client=http)
        else:
            transport = stdio_parameters(target)
        client = await stack.enter_async_context(Client(transport, read_timeout_seconds=timeout))

        async def call(tool, arguments):
            return plain((await client.call_tool(tool, arguments)).content)

        yield call


def fastmcp_transport(target):
    from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

    if "url" in target:
        return StreamableHttpTransport(target["url"], headers=target["headers"])
    command, *args = target["command"]
    return StdioTransport(command, args, env=target["env"])


@contextlib.asynccontextmanager
async def fastmcp(target, timeout):
    from fastmcp import Client
    from fastmcp.exceptions import ToolError

    async with Client(fastmcp_transport(target), timeout=timeout) as client:

        async def call(tool, arguments):
            try:
                return plain((await client.call_tool(tool, arguments)).content)
            except ToolError as error:  # its text is all that a program gets
                return str(error)

        yield call


@contextlib.asynccontextmanager
async def openai_agents(target, timeout, **options):
    import agents
    from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
    from agents.items import ModelResponse
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    class Scripted(agents.Model):
        def __init__(self, tool, arguments):
            self.wish = ResponseFunctionToolCall(
                type="function_call", call_id="c1", name=tool, arguments=json.dumps(arguments)
            )
            self.seen = None

        async def get_response(self, system_instructions, input, *args, **kwargs):
            outputs = [item for item in input if isinstance(item, dict) and item.get("type") == "function_call_output"]
            if not outputs:
                return ModelResponse(output=[self.wish], usage=agents.Usage(), response_id=None)
            self.seen = outputs[-1]["output"]
            text = ResponseOutputText(type="output_text", text="done", annotations=[])
            message = ResponseOutputMessage(
                id="m1", type="message", role="assistant", status="completed", content=[text]
            )
            return ModelResponse(output=[message], usage=agents.Usage(), response_id=None)

        def stream_response(self, *args, **kwargs):
            raise NotImplementedError

    if timeout is not None:
        options["client_session_timeout_seconds"] = timeout
    if "url" in target:
        server = MCPServerStreamableHttp({"url": target["url"], "headers": target["headers"]}, **options)
    else:
        command, *args = target["command"]
        server = MCPServerStdio({"command": command, "args": args, "env": target["env"]}, **options)
    async with server:

        async def call(tool, arguments):
            model = Scripted(tool, arguments)
            agent = agents.Agent(name="a", model=model, mcp_servers=[server])
            await agents.Runner.run(agent, "go", run_config=agents.RunConfig(tracing_disabled=True))
            if isinstance(model.seen, str):
                return model.seen
            parts = model.seen if isinstance(model.seen, list) else [model.seen]
            return "\n".join(part.get("text", part["type"]) for part in parts)

        yield call


@contextlib.asynccontextmanager
async def langchain(target, timeout):
    from langchain_mcp_adapters.client import MultiServerMCPClient

    session = {} if timeout is None else {"read_timeout_seconds": timedelta(seconds=timeout)}
    if "url" in target:
        place = {"transport": "streamable_http", "url": target["url"], "headers": target["headers"]}
    else:
        command, *args = target["command"]
        place = {"transport": "stdio", "command": command, "args": args, "env": target["env"]}
    client = MultiServerMCPClient({"s": {**place, "session_kwargs": session}})
    tools = {tool.name: tool for tool in await client.get_tools()}

    async def call(tool, arguments):
        message = await tools[tool].ainvoke({"type": "tool_call", "id": "c1", "name": tool, "args": arguments})
        return message.text if isinstance(message.text, str) else message.text()

    yield call


@contextlib.asynccontextmanager
async def pydantic_ai(target, timeout):
    from pydantic_ai import Agent
    from pydantic_ai.mcp import MCPToolset
    from pydantic_ai.messages import ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel

    options = {} if timeout is None else {"read_timeout": timeout}
    toolset = MCPToolset(fastmcp_transport(target), **options)
    async with toolset:

        async def call(tool, arguments):
            seen = []

            def model(messages, info):
                parts = messages[-1].parts
                seen.extend(part.model_response_str() for part in parts if isinstance(part, ToolReturnPart))
                seen.extend(part.model_response() for part in parts if isinstance(part, RetryPromptPart))
                return ModelResponse(parts=[TextPart("done") if seen else ToolCallPart(tool, arguments)])

            await Agent(FunctionModel(model), toolsets=[toolset]).run("go")
            return "\n".join(seen)

        yield call


@contextlib.asynccontextmanager
async def openai_agents_structured(target, timeout):
    async with openai_agents(target, timeout, use_structured_content=True) as call:
        yield call


KINDS = {
    "mcp1": mcp1,
    "mcp2": mcp2,
    "fastmcp": fastmcp,
    "openai-agents": openai_agents,
    "openai-agents-structured": openai_agents_structured,
    "langchain": langchain,
    "pydantic-ai": pydantic_ai,
}

# The modules of a kind, imported before its first client is needed.
MODULES = {
    "mcp1": ["mcp", "mcp.client.stdio", "mcp.client.streamable_http"],
    "mcp2": ["mcp", "mcp.client.stdio", "mcp.client.streamable_http"],
    "fastmcp": ["fastmcp", "fastmcp.client", "fastmcp.client.transports"],
    "openai-agents": ["agents", "agents.mcp"],
    "openai-agents-structured": ["agents", "agents.mcp"],
    "langchain": ["langchain_mcp_adapters.client"],
    "pydantic-ai": ["pydantic_ai", "pydantic_ai.mcp", "pydantic_ai.models.function", "fastmcp.client"],
}
