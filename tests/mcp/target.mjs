#!/usr/bin/env node
// The server that the conformance suite wants to see: its tools, prompts and resources, made with the
// SDK's own server, which speaks both eras.
//
//     node target.mjs http PORT     at http://127.0.0.1:PORT/mcp
//     node target.mjs stdio
//
// The suite describes what each of them has to do; nothing here is more than that.

import { createHmac, randomUUID, timingSafeEqual } from 'node:crypto';
import http from 'node:http';
import process from 'node:process';
import { Readable } from 'node:stream';
import {
    McpServer, ProtocolError, ResourceTemplate,
    WebStandardStreamableHTTPServerTransport, acceptedContent, completable, createMcpHandler, fromJsonSchema,
    hostHeaderValidationResponse, inputRequired, isLegacyRequest, localhostAllowedHostnames,
    localhostAllowedOrigins, originValidationResponse,
} from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const text = (value) => ({ content: [{ type: 'text', text: value }] });
const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
const wav = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=';
const nothing = z.object({});
let notifier = null; // of streams that listen, over HTTP

// ---- state that goes through the client

const secret = randomUUID();
const seal = (state) => createHmac('sha256', secret).update(state).digest('base64url');
const mint = (state) => `${state}.${seal(state)}`;
function verify(sealed) {
    const [state, mac = ''] = sealed.split('.');
    const good = Buffer.from(seal(state));
    const given = Buffer.from(mac);
    if (good.length !== given.length || !timingSafeEqual(good, given))
        throw new ProtocolError(-32602, 'the request state was altered');
    return state;
}

// ---- questions

const form = (message, name, type = 'string') => inputRequired.elicit({
    message, requestedSchema: { type: 'object', properties: { [name]: { type } }, required: [name] },
});
const sampling = (prompt, maxTokens) => inputRequired.createMessage({
    messages: [{ role: 'user', content: { type: 'text', text: prompt } }], maxTokens,
});
const given = (ctx, name) => ctx.mcpReq.inputResponses?.[name];
const accepted = (ctx, name) => acceptedContent(ctx.mcpReq.inputResponses, name);

function addQuestions(server) {
    const tool = (name, run) => server.registerTool(`test_input_required_result_${name}`,
        { description: `Asks: ${name}`, inputSchema: nothing }, (args, ctx) => run(ctx));

    tool('elicitation', (ctx) => {
        const name = accepted(ctx, 'user_name')?.name;
        if (typeof name === 'string') return text(`Hello, ${name}!`);
        return inputRequired({ inputRequests: { user_name: form('What is your name?', 'name') } });
    });
    tool('sampling', (ctx) => {
        const answer = given(ctx, 'capital_question')?.content?.text;
        if (answer) return text(answer);
        return inputRequired({ inputRequests: { capital_question: sampling('What is the capital of France?', 100) } });
    });
    tool('list_roots', (ctx) => {
        const roots = given(ctx, 'client_roots')?.roots;
        if (roots) return text(`roots: ${roots.map((root) => root.uri)}`);
        return inputRequired({ inputRequests: { client_roots: inputRequired.listRoots() } });
    });
    tool('request_state', (ctx) => {
        if (ctx.mcpReq.requestState() && accepted(ctx, 'confirm')) return text('state-ok');
        return inputRequired({ inputRequests: { confirm: form('Please confirm', 'ok', 'boolean') }, requestState: mint('one') });
    });
    tool('multiple_inputs', (ctx) => {
        if (accepted(ctx, 'user_name') && given(ctx, 'greeting') && given(ctx, 'client_roots')) return text('all are here');
        return inputRequired({
            inputRequests: {
                user_name: form('What is your name?', 'name'), greeting: sampling('Generate a greeting', 50),
                client_roots: inputRequired.listRoots(),
            },
            requestState: mint('many'),
        });
    });
    tool('multi_round', (ctx) => {
        const state = ctx.mcpReq.requestState();
        if (state === 'second' && accepted(ctx, 'step2')) return text('both rounds are over');
        if (state === 'first' && accepted(ctx, 'step1')) return inputRequired({
            inputRequests: { step2: form('Step 2: What is your favorite color?', 'color') }, requestState: mint('second'),
        });
        return inputRequired({ inputRequests: { step1: form('Step 1: What is your name?', 'name') }, requestState: mint('first') });
    });
    tool('tampered_state', (ctx) => {
        if (ctx.mcpReq.requestState() && accepted(ctx, 'confirm')) return text('not altered');
        return inputRequired({ inputRequests: { confirm: form('Please confirm', 'ok', 'boolean') }, requestState: mint('kept') });
    });
    // It asks for no more than the client says that it can do.
    tool('capabilities', (ctx) => {
        const can = ctx.mcpReq.envelope?.['io.modelcontextprotocol/clientCapabilities'] ?? {};
        const inputRequests = {};
        if (can.elicitation && !accepted(ctx, 'name')) inputRequests.name = form('What is your name?', 'name');
        if (can.sampling && !given(ctx, 'said')) inputRequests.said = sampling('Say something', 10);
        if (can.roots && !given(ctx, 'roots')) inputRequests.roots = inputRequired.listRoots();
        return Object.keys(inputRequests).length > 0 ? inputRequired({ inputRequests }) : text('nothing to ask');
    });
    server.registerPrompt('test_input_required_result_prompt', { description: 'Asks first' }, (ctx) => {
        const context = accepted(ctx, 'user_context')?.context;
        if (!context) return inputRequired({ inputRequests: { user_context: form('What context should the prompt use?', 'context') } });
        return { messages: [{ role: 'user', content: { type: 'text', text: `In the context of ${context}` } }] };
    });
}

// ---- plain tools

const wide2020 = {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    $defs: { address: { $anchor: 'addressDef', type: 'object', properties: { street: { type: 'string' }, city: { type: 'string' } } } },
    properties: {
        name: { type: 'string' }, address: { $ref: '#/$defs/address' },
        contactMethod: { type: 'string', enum: ['phone', 'email'] }, phone: { type: 'string' }, email: { type: 'string' },
    },
    allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
    if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
    then: { required: ['phone'] },
    else: { required: ['email'] },
    additionalProperties: false,
};
const withHeaders = {
    type: 'object',
    properties: { region: { type: 'string', 'x-mcp-header': 'Region' }, note: { type: 'string' } },
    required: ['region'],
};

function addTools(server) {
    const tool = (name, run, inputSchema = nothing) =>
        server.registerTool(name, { description: `For tests: ${name}`, inputSchema }, run);
    const embedded = (uri, mimeType, value) => ({ type: 'resource', resource: { uri, mimeType, text: value } });

    tool('test_simple_text', () => text('This is a simple text response for testing.'));
    tool('test_image_content', () => ({ content: [{ type: 'image', data: png, mimeType: 'image/png' }] }));
    tool('test_audio_content', () => ({ content: [{ type: 'audio', data: wav, mimeType: 'audio/wav' }] }));
    tool('test_embedded_resource', () => ({
        content: [embedded('test://embedded-resource', 'text/plain', 'This is an embedded resource content.')],
    }));
    tool('test_multiple_content_types', () => ({
        content: [
            { type: 'text', text: 'Multiple content types test:' }, { type: 'image', data: png, mimeType: 'image/png' },
            embedded('test://mixed-content-resource', 'application/json', '{"test":"data","value":123}'),
        ],
    }));
    tool('test_error_handling', () => {
        throw new Error('This tool intentionally returns an error for testing');
    });
    tool('test_tool_with_logging', async (args, ctx) => {
        for (const line of ['Tool execution started', 'Tool processing data', 'Tool execution completed']) {
            await ctx.mcpReq.log('info', line);
            await sleep(50);
        }
        return text('logged');
    });
    tool('test_tool_with_progress', async (args, ctx) => {
        const progressToken = ctx.mcpReq._meta?.progressToken;
        for (const progress of [0, 50, 100]) {
            if (progressToken !== undefined)
                await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: 100 } });
            await sleep(50);
        }
        return text('done');
    });
    // Asking a client for what it did not say that it can do is refused by the SDK, as it must be.
    tool('test_missing_capability', (args, ctx) => given(ctx, 'said')
        ? text('it can') : inputRequired({ inputRequests: { said: sampling('Say something', 10) } }));
    tool('test_logging_tool', async (args, ctx) => {
        await ctx.mcpReq.log('info', 'A line of the log');
        return text('logged');
    });
    tool('test_streaming_elicitation', (args, ctx) => accepted(ctx, 'name')
        ? text('answered') : inputRequired({ inputRequests: { name: form('What is your name?', 'name') } }));
    tool('test_reconnection', async (args, ctx) => {
        await sleep(100);
        ctx.http?.closeSSE?.();
        await sleep(100);
        return text('Reconnection test completed successfully.');
    });
    tool('test_trigger_tool_change', () => {
        if (notifier) notifier.toolsChanged();
        else server.sendToolListChanged();
        return text('changed');
    });
    tool('test_trigger_prompt_change', () => {
        if (notifier) notifier.promptsChanged();
        else server.sendPromptListChanged();
        return text('changed');
    });
    tool('test_headers', ({ region }) => text(`region ${region}`), fromJsonSchema(withHeaders));
    tool('json_schema_2020_12_tool', () => text('ok'), fromJsonSchema(wide2020));
}

// What asks in the middle of a call, in the way of the old era: on the call's own stream, for there may
// be no other yet.
function addOldQuestions(server) {
    const ask = async (ctx, message, properties, required) => {
        const requestedSchema = { type: 'object', properties, required };
        return ctx.mcpReq.send({ method: 'elicitation/create', params: { message, requestedSchema } });
    };
    const tool = (name, run, inputSchema = nothing) =>
        server.registerTool(name, { description: `For tests: ${name}`, inputSchema }, run);
    const completed = ({ action, content }) => text(`Elicitation completed: action=${action}, content=${JSON.stringify(content)}`);

    tool('test_sampling', async ({ prompt }, ctx) => {
        const messages = [{ role: 'user', content: { type: 'text', text: prompt } }];
        const { content } = await ctx.mcpReq.send({ method: 'sampling/createMessage', params: { messages, maxTokens: 100 } });
        return text(`LLM response: ${content.text}`);
    }, z.object({ prompt: z.string() }));
    tool('test_elicitation', async ({ message }, ctx) => {
        const field = (description) => ({ type: 'string', description });
        const properties = { username: field("User's response"), email: field("User's email address") };
        const { action, content } = await ask(ctx, message, properties, ['username', 'email']);
        return text(`User response: <action: ${action}, content: ${JSON.stringify(content)}>`);
    }, z.object({ message: z.string() }));
    tool('test_elicitation_sep1034_defaults', async (args, ctx) => completed(await ask(ctx, 'Please check', {
        name: { type: 'string', default: 'John Doe' }, age: { type: 'integer', default: 30 },
        score: { type: 'number', default: 95.5 }, verified: { type: 'boolean', default: true },
        status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
    }, [])));
    const options = ['option1', 'option2', 'option3'];
    const titled = [1, 2, 3].map((n) => ({ const: `value${n}`, title: `Title ${n}` }));
    tool('test_elicitation_sep1330_enums', async (args, ctx) => completed(await ask(ctx, 'Please choose', {
        untitledSingle: { type: 'string', enum: options },
        titledSingle: { type: 'string', oneOf: titled },
        legacyEnum: { type: 'string', enum: ['opt1', 'opt2', 'opt3'], enumNames: ['Option One', 'Option Two', 'Option Three'] },
        untitledMulti: { type: 'array', items: { type: 'string', enum: options } },
        titledMulti: { type: 'array', items: { anyOf: titled } },
    }, [])));
}

function addResources(server) {
    const resource = (name, uri, mimeType, content) => server.registerResource(name, uri,
        { description: `For tests: ${name}`, mimeType }, () => ({ contents: [{ uri, mimeType, ...content }] }));
    resource('static-text', 'test://static-text', 'text/plain', { text: 'This is the content of the static text resource.' });
    resource('static-binary', 'test://static-binary', 'image/png', { blob: png });
    resource('watched', 'test://watched-resource', 'text/plain', { text: 'watched' });
    server.registerResource('template', new ResourceTemplate('test://template/{id}/data', { list: undefined }),
        { description: 'For tests: template', mimeType: 'application/json' }, (uri, { id }) => ({
            contents: [{
                uri: uri.href, mimeType: 'application/json',
                text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }),
            }],
        }));
}

function addPrompts(server) {
    const said = (...contents) => ({ messages: contents.map((content) => ({ role: 'user', content })) });
    const prompt = (name, run, argsSchema) => server.registerPrompt(name, { description: `For tests: ${name}`, argsSchema }, run);
    prompt('test_simple_prompt', () => said({ type: 'text', text: 'This is a simple prompt for testing.' }));
    prompt('test_prompt_with_arguments', ({ arg1, arg2 }) =>
        said({ type: 'text', text: `Prompt with arguments: arg1='${arg1}', arg2='${arg2}'` }),
    z.object({ arg1: completable(z.string(), () => ['paris', 'park', 'party']), arg2: z.string() }));
    prompt('test_prompt_with_embedded_resource', ({ resourceUri }) => said(
        { type: 'resource', resource: { uri: resourceUri, mimeType: 'text/plain', text: 'Embedded resource content for testing.' } },
        { type: 'text', text: 'Please process the embedded resource above.' },
    ), z.object({ resourceUri: z.string() }));
    prompt('test_prompt_with_image', () => said(
        { type: 'image', data: png, mimeType: 'image/png' }, { type: 'text', text: 'Please analyze the image above.' },
    ));
}

function makeServer({ era }) {
    const server = new McpServer({ name: 'conformance-target', version: '1.0.0' }, {
        capabilities: {
            logging: {}, tools: { listChanged: true }, prompts: { listChanged: true },
            resources: { subscribe: true, listChanged: true }, completions: {},
        },
        requestState: { verify },
    });
    addTools(server);
    addResources(server);
    addPrompts(server);
    addQuestions(server);
    if (era === 'legacy') {
        addOldQuestions(server);
        server.server.setRequestHandler('resources/subscribe', () => ({}));
        server.server.setRequestHandler('resources/unsubscribe', () => ({}));
    }
    return server;
}

// ---- HTTP

// Events of legacy streams, for those who come back for them.
class Events {
    all = [];
    async storeEvent(stream, message) {
        this.all.push({ stream, message });
        return String(this.all.length - 1);
    }
    async getStreamIdForEventId(id) {
        return this.all[Number(id)]?.stream;
    }
    async replayEventsAfter(id, { send }) {
        const { stream } = this.all[Number(id)];
        for (let i = Number(id) + 1; i < this.all.length; i++)
            if (this.all[i].stream === stream) await send(String(i), this.all[i].message);
        return stream;
    }
}

const sessions = new Map();

async function legacy(request) {
    const id = request.headers.get('mcp-session-id');
    if (id !== null) {
        const known = sessions.get(id);
        return known ? known.handleRequest(request) : new Response('no such session', { status: 404 });
    }
    const transport = new WebStandardStreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID, eventStore: new Events(), retryInterval: 500,
        onsessioninitialized: (session) => sessions.set(session, transport),
        onsessionclosed: (session) => sessions.delete(session),
    });
    await makeServer({ era: 'legacy' }).connect(transport);
    return transport.handleRequest(request);
}

function serveHttp(port) {
    const modern = createMcpHandler(makeServer, { legacy: 'reject' });
    notifier = modern.notify;
    const answer = async (request) => hostHeaderValidationResponse(request, localhostAllowedHostnames())
        ?? originValidationResponse(request, localhostAllowedOrigins())
        ?? ((await isLegacyRequest(request.clone())) ? legacy(request) : modern.fetch(request));
    http.createServer(async (incoming, outgoing) => {
        const gone = new AbortController();
        outgoing.on('close', () => gone.abort());
        const body = ['GET', 'HEAD', 'DELETE'].includes(incoming.method) ? {} : { body: Readable.toWeb(incoming), duplex: 'half' };
        const request = new Request(`http://${incoming.headers.host}${incoming.url}`, {
            method: incoming.method, headers: incoming.headers, signal: gone.signal, ...body,
        });
        const response = await answer(request);
        outgoing.writeHead(response.status, Object.fromEntries(response.headers));
        if (response.body) Readable.fromWeb(response.body).on('error', () => outgoing.destroy()).pipe(outgoing);
        else outgoing.end();
    }).listen(Number(port), '127.0.0.1', () => console.error('listening'));
}

const [how, port] = process.argv.slice(2);
if (how === 'http') serveHttp(port);
else serveStdio(makeServer);
