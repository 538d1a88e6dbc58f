// A server of the TypeScript SDK whose tools count.
//
//     sdk_server.mjs 1|2            over stdio
//     sdk_server.mjs 1|2 --http     over Streamable HTTP; its URL is the first line on standard output
//
// Each call adds a line, the tool's name and its argument, to the file that SEMEL_COUNT names.

import fs from 'node:fs';
import http from 'node:http';
import { Readable } from 'node:stream';
import express from 'express';
import { McpServer as McpServer1 } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { McpServer as McpServer2, createMcpHandler } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const [version, over] = process.argv.slice(2);

function make() {
    const server = new (version === '1' ? McpServer1 : McpServer2)({ name: 'counting', version: '1' });
    for (const name of ['pay', 'look']) {
        const inputSchema = version === '1' ? { to: z.string().optional() } : z.object({ to: z.string().optional() });
        server.registerTool(name, { inputSchema, annotations: { readOnlyHint: name === 'look' } }, async ({ to }) => {
            fs.appendFileSync(process.env.SEMEL_COUNT, `${name} ${to}\n`);
            return { content: [{ type: 'text', text: `${name} ${to}` }] };
        });
    }
    return server;
}

function listen(handler) {
    const server = http.createServer(handler).listen(0, '127.0.0.1', () => {
        process.stdout.write(`http://127.0.0.1:${server.address().port}/mcp\n`);
    });
}

// As the SDK's own examples do it: the framework reads the body.
function listen1() {
    const app = express();
    app.use(express.json());
    app.post('/mcp', async (request, response) => {
        const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined, enableJsonResponse: true });
        await make().connect(transport);
        await transport.handleRequest(request, response, request.body);
    });
    listen(app);
}

function listen2() {
    const handler = createMcpHandler(make);
    listen(async (incoming, outgoing) => {
        const body = incoming.method === 'POST' ? { body: Readable.toWeb(incoming), duplex: 'half' } : {};
        const url = `http://${incoming.headers.host}${incoming.url}`;
        const response = await handler.fetch(new Request(url, { method: incoming.method, headers: incoming.headers, ...body }));
        outgoing.writeHead(response.status, Object.fromEntries(response.headers));
        outgoing.end(Buffer.from(await response.arrayBuffer()));
    });
}

if (over === '--http') (version === '1' ? listen1 : listen2)();
else if (version === '1') await make().connect(new StdioServerTransport());
else serveStdio(make);
