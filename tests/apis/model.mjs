// A server of generations, such as OpenAI's and Anthropic's. It sends a piece of a stream when the test lets it:
// if a client has a piece before the next one is sent, nobody has held it back.
//
//     const model = await Model.start({ path: '/v1/messages', whole, before, piece, after, list, objects, refused });
//     await model.inPieces((order, piece) => ask(order, piece));
//     model.streams.get(question).next()
//
// A question that begins with `slow` gets nothing before the first `next`.

import { answerJson, assert, good, newOrder, ownServer } from './harness.mjs';
import { eventually } from '../gateway/tap.mjs';

export class Model {
    // dialect: `path` of the generations; `whole` makes an answer of a text, `piece` an event; `before` and `after`
    // are the events around the pieces; `list` is what GET gives; `objects` has a maker for each path of a POST, and
    // `refused` gives the error for a body that is refused.
    static async start(dialect) {
        const model = new Model(dialect);
        model.port = await ownServer((request, body, response) => model.answer(request, body, response));
        return model;
    }

    constructor(dialect) {
        Object.assign(this, { dialect, serials: 0, streams: new Map() });
    }

    answer(request, body, response) {
        const [where] = request.url.split('?');
        if (request.method === 'GET') return answerJson(response, this.dialect.list);
        if (where === this.dialect.path) return this.generate(JSON.parse(body), response);
        const refused = this.dialect.refused?.(body);
        if (refused) return answerJson(response, refused, 400);
        answerJson(response, this.dialect.objects[where](++this.serials));
    }

    async generate(body, response) {
        const question = body.messages[0].content;
        const state = { sent: 0, closed: false };
        const step = () => new Promise((resolve) => (state.next = resolve));
        this.streams.set(question, state);
        response.on('close', () => (state.closed = true));
        if (question.startsWith('slow')) await step();
        if (!body.stream) return answerJson(response, this.dialect.whole(`answer ${++this.serials}`));
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write(this.dialect.before);
        for (const text of ['one', 'two', 'three']) {
            if (state.sent > 0) await step();
            state.sent++;
            response.write(this.dialect.piece(text));
        }
        response.end(this.dialect.after);
    }

    // Asks for a stream. Each of its pieces is there before the server sends the next. The order that was asked about.
    async inPieces(ask) {
        const order = newOrder();
        const got = [];
        const whole = ask(order, (text) => got.push(text));
        for (let n = 1; n <= 3; n++) {
            await eventually(`piece ${n} is there`, () => got.length === n);
            assert.equal(this.streams.get(order).sent, n);
            this.streams.get(order).next?.();
        }
        assert.deepEqual(good(await whole), ['one', 'two', 'three']);
        return order;
    }
}
