// The contract that most of the gateway's tests use: a shop whose tools are at one upstream.

export function shop(upstream, more = {}) {
    const at = (path, rest = {}) => ({
        url: `${upstream.url}${path}`,
        timeout: '5s',
        retry: { attempts: 1 },
        ...rest,
    });
    const tools = {
        charge: {
            class: 'irreversible',
            key: { fields: ['/order_id'], match: ['/amount'] },
            input: {
                type: 'object',
                required: ['order_id'],
                properties: { order_id: { type: 'string' } },
            },
            barrier: 'off',
            upstream: at('/ok/charge', {
                headers: { Authorization: 'Bearer ${SHOP_SECRET}' },
                idempotency: { header: 'Idempotency-Key', window: '24h' },
            }),
        },
        order: { class: 'write', upstream: at('/created/order') },
        any: { class: 'write', key: 'explicit', upstream: at('/ok/any') },
        slow: { class: 'write', loop: 'off', upstream: at('/slow/400') }, // what is asked at once is not a loop
        lost: { class: 'write', barrier: 'off', upstream: at('/reset-after/lost') },
        rejected: { class: 'irreversible', barrier: 'off', upstream: at('/refuse/402') },
        lookup: { class: 'read', upstream: at('/find?order_id={order_id}', { method: 'GET' }) },
        'lookup.hangs': { class: 'read', upstream: at('/hang', { method: 'GET', timeout: '60s' }) },
        gift: {
            class: 'write',
            approval: { when: [{ field: '/amount', over: 100 }], expires: '1h' },
            upstream: at('/ok/gift'),
        },
        pair: { class: 'write', approval: { quorum: 2 }, upstream: at('/ok/pair') },
        selfmade: {
            class: 'write',
            approval: { self_approval: 'on' },
            upstream: at('/ok/selfmade'),
        },
        own: { class: 'write' },
        'own.asks': { class: 'write', approval: {} },
        ...more,
    };
    return { version: 1, unlisted: 'hide', tools };
}

let orders = 0;

// An order id that no other test has.
export function newOrder() {
    return `o${process.pid}-${++orders}`;
}
