"""Published SDKs of Python, driven by lines of JSON.

A command is {"id", "sdk", "client", "call", "args"}: `client` are the options that its client is made
with, `call` is a path of attributes. Each command has a thread of its own, so that many run at once.
The answer is {"id", "value"} or {"id", "raised"}; a stream gives {"id", "piece"} for each of its pieces
before.
"""

import base64
import datetime
import importlib
import io
import json
import os
import sys
import threading

lock = threading.Lock()  # of the output
making = threading.Lock()  # of the clients
clients = {}
out = os.fdopen(os.dup(1), "w")


def plain(value):
    """What JSON has no words for, as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if hasattr(value, "read"):
        return plain(value.read())
    return str(value)


def tell(answer):
    text = json.dumps(answer, default=plain)
    with lock:
        out.write(text + "\n")
        out.flush()


class Stripe:
    def __init__(self, key, base, retries=0, **options):
        import stripe

        bases = {"api": base, "files": base}
        self.client = stripe.StripeClient(
            key, base_addresses=bases, max_network_retries=retries, **options
        )

    def value(self, answer, piece):
        return {
            "object": answer.to_dict(),
            "request": answer.last_response.request_id,
            "status": answer.last_response.code,
        }

    def raised(self, e):
        told = getattr(e, "error", None)
        code = getattr(e, "code", None) or getattr(told, "code", None)
        return {"status": getattr(e, "http_status", None), "code": code}


class Aws:
    def __init__(self, service, key, secret, base, retries=0, headers={}):
        import boto3
        from botocore.config import Config

        config = Config(
            retries={"mode": "standard", "total_max_attempts": retries + 1},
            max_pool_connections=128,
            s3={"addressing_style": "path"},
        )
        self.client = boto3.client(
            service, endpoint_url=base, region_name="us-east-1", config=config,
            aws_access_key_id=key, aws_secret_access_key=secret,
        )

        def add(request, **_):
            for name, value in headers.items():
                request.headers[name] = value

        self.client.meta.events.register("before-sign", add)

    def value(self, answer, piece):
        if isinstance(answer, dict) and "Body" in answer:
            answer["Body"] = answer["Body"].read()
        return answer

    def raised(self, e):
        answer = getattr(e, "response", None) or {}  # none came
        about = answer.get("ResponseMetadata", {})
        return {
            "status": about.get("HTTPStatusCode"),
            "code": answer.get("Error", {}).get("Code"),
            "effect": about.get("HTTPHeaders", {}).get("semel-effect"),
        }


class Openai:
    def __init__(self, key, base, retries=0, **options):
        import openai

        self.client = openai.OpenAI(api_key=key, base_url=base, max_retries=retries, **options)

    def texts(self, answer):
        """The pieces of a stream; of an answer that is whole, None."""
        if hasattr(answer, "__iter__") and hasattr(answer, "close"):
            return (chunk.choices[0].delta.content for chunk in answer)

    def value(self, answer, piece):
        texts = self.texts(answer)
        if texts is not None:
            got = []
            for text in texts:
                got.append(text)
                piece(text)
            return got
        return answer.model_dump() if hasattr(answer, "model_dump") else answer

    def raised(self, e):
        return {"status": getattr(e, "status_code", None), "code": getattr(e, "code", None)}


class Anthropic(Openai):
    def __init__(self, base, key=None, retries=0, **options):
        import anthropic

        self.client = anthropic.Anthropic(
            api_key=key, base_url=base, max_retries=retries, **options
        )

    def texts(self, answer):
        if hasattr(answer, "__iter__") and hasattr(answer, "close"):
            return (one.delta.text for one in answer if one.type == "content_block_delta")
        if hasattr(answer, "__enter__"):  # of messages.stream
            return answer.__enter__().text_stream

    def raised(self, e):
        body = getattr(e, "body", None)
        code = body.get("code") if isinstance(body, dict) else None
        return {"status": getattr(e, "status_code", None), "code": code}


kinds = {"stripe": Stripe, "aws": Aws, "openai": Openai, "anthropic": Anthropic}


def arguments(value):
    """Bytes and files come as {"base64"}, a file with a name beside."""
    if isinstance(value, dict) and "base64" in value:
        file = io.BytesIO(base64.b64decode(value["base64"]))
        if "name" not in value:
            return file.getvalue()
        file.name = value["name"]
        return file
    if isinstance(value, dict):
        return {name: arguments(one) for name, one in value.items()}
    return [arguments(one) for one in value] if isinstance(value, list) else value


def run(command):
    id = command["id"]
    try:
        name = json.dumps([command["sdk"], command["client"]], sort_keys=True)
        with making:
            if name not in clients:
                clients[name] = kinds[command["sdk"]](**command["client"])
            client = clients[name]
        call = client.client
        for part in command["call"].split("."):
            call = getattr(call, part)
        args = arguments(command["args"])
        answer = call(*args) if isinstance(args, list) else call(**args)
        tell({"id": id, "value": client.value(answer, lambda piece: tell({"id": id, "piece": piece}))})
    except Exception as e:
        more = client.raised(e) if "client" in locals() else {}
        tell({"id": id, "raised": {"type": type(e).__name__, "message": str(e), **more}})


for module in sys.argv[1:]:
    importlib.import_module(module)
tell({"id": 0, "value": os.getpid()})
for line in sys.stdin:
    threading.Thread(target=run, args=[json.loads(line)], daemon=True).start()
