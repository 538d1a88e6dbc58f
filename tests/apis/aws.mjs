// boto3 before moto, which checks every signature: DynamoDB and SQS (JSON, the operation in a header)
// and S3 (REST). A signature covers the Host and the path, so each proxy has an address of its own and
// passes the Host on.

import http from 'node:http';
import { Site, assert, bad, good, here, hundred, newOrder, python, pythonPath, server } from './harness.mjs';
import { run, test } from '../gateway/tap.mjs';

const sdk = await python('boto3');
const moto = await server(pythonPath('python'), (port) => ['-m', 'moto.server', '-p', `${port}`]);

// Moto checks nothing until it is told to; users are made before.
const direct = { key: 'first', secret: 'first', base: `http://127.0.0.1:${moto.port}` };
const iam = (call, args) => sdk.call('aws', { service: 'iam', ...direct }, call, args).then(good);
const all = JSON.stringify({ Version: '2012-10-17', Statement: [{ Effect: 'Allow', Action: '*', Resource: '*' }] });
async function user(name) {
    await iam('create_user', { UserName: name });
    await iam('put_user_policy', { UserName: name, PolicyName: 'all', PolicyDocument: all });
    const { AccessKey } = await iam('create_access_key', { UserName: name });
    return { key: AccessKey.AccessKeyId, secret: AccessKey.SecretAccessKey };
}
const users = [await user('anna'), await user('bert')];
await new Promise((resolve, reject) => {
    const request = http.request({ port: moto.port, method: 'POST', path: '/moto-api/reset-auth', headers: { 'content-type': 'text/plain' } }, (answer) => {
        answer.resume().on('end', resolve);
    });
    request.on('error', reject);
    request.end('0');
});

const tools = { 'proxy.asking': { class: 'irreversible', approval: { expires: '1h' } } };
const site = await Site.start({
    aws: { port: moto.port, config: { preset: 'aws-json', pass_host: true } },
    s3: { port: moto.port, config: { pass_host: true } },
    asking: { port: moto.port, config: { preset: 'aws-json', pass_host: true, timeout: '3s' } },
}, { contract: { version: 1, tools }, limits: { body: '9MiB' } });
const { api, front } = site.aws;

const at = (place, service) => (call, args, { who = users[0], retries = 0, headers = {} } = {}) =>
    sdk.call('aws', { service, ...who, base: place.base, retries, headers }, call, args);
const dynamo = at(site.aws, 'dynamodb');
const sqs = at(site.aws, 'sqs');
const s3 = at(site.s3, 's3');

const id = (order) => ({ id: { S: order } });
const target = (entry) => (entry.headers['x-amz-target'] ?? '').split('.').at(-1);
const done = (wire, order, operation) => wire.of(order, (entry) => target(entry) === operation);

// A counter in a table: adding to it twice shows.
const add = (order, options) => dynamo('update_item', {
    TableName: 'orders', Key: id(order), UpdateExpression: 'ADD n :one', ExpressionAttributeValues: { ':one': { N: '1' } },
}, options);
const times = async (order) => Number(good(await dynamo('get_item', { TableName: 'orders', Key: id(order) })).Item?.n?.N ?? 0);

test('tables, queues and buckets are made', async () => {
    good(await dynamo('create_table', {
        TableName: 'orders', BillingMode: 'PAY_PER_REQUEST',
        KeySchema: [{ AttributeName: 'id', KeyType: 'HASH' }], AttributeDefinitions: [{ AttributeName: 'id', AttributeType: 'S' }],
    }));
    good(await s3('create_bucket', { Bucket: 'a-bucket' }));
});

test('a signature that is wrong is refused by the API, and the SDK says so', async () => {
    const order = newOrder();
    const who = { ...users[0], secret: 'wrong' };
    const raised = bad(await add(order, { who }));
    assert.equal(raised.status, 403);
    assert.match(raised.message, /SignatureDoesNotMatch/);
    good(await add(order));
    good(await add(order, { who }));
    assert.equal(await times(order), 1, 'a repeat does not reach the API, and the gateway knows no secrets');
    assert.match(bad(await add(order, { who: { ...users[1], secret: 'wrong' } })).message, /SignatureDoesNotMatch/);
});

test('DynamoDB: a change runs once, and its repeat by the agent is the same', async () => {
    const order = newOrder();
    const first = good(await add(order));
    const again = good(await add(order));
    assert.equal(await times(order), 1);
    assert.equal(done(api, order, 'UpdateItem').length, 1);
    assert.equal(first.ResponseMetadata.HTTPStatusCode, 200);
    assert.equal(again.ResponseMetadata.RequestId, first.ResponseMetadata.RequestId);
    const ids = front.of(order, (entry) => target(entry) === 'UpdateItem').map((entry) => entry.headers['amz-sdk-invocation-id']);
    assert.equal(new Set(ids).size, 2, 'this is about different retry headers');
});

test('DynamoDB: the answer is lost between gateway and client: the retry gets it', async () => {
    const order = newOrder();
    front.trouble('drop', here(order));
    good(await add(order, { retries: 2 }));
    assert.equal(await times(order), 1);
});

test('DynamoDB: the answer is lost between API and gateway: raised as in doubt, done once', async () => {
    const order = newOrder();
    api.trouble('drop', here(order));
    const raised = bad(await add(order, { retries: 2 }));
    assert.equal(raised.status, 409);
    assert.match(raised.message, /may or may not have taken effect/);
    assert.equal(await times(order), 1);
});

test('DynamoDB: reads are POSTs, and reach the API each time', async () => {
    const order = newOrder();
    assert.equal(await times(order), 0);
    good(await add(order));
    assert.equal(await times(order), 1);
    good(await dynamo('query', { TableName: 'orders', KeyConditionExpression: 'id = :id', ExpressionAttributeValues: { ':id': { S: order } } }));
    assert.equal(done(api, order, 'GetItem').length, 2);
});

test('DynamoDB: a read that the API fails is sent again by the SDK', async () => {
    const order = newOrder();
    api.trouble('fail', here(order));
    good(await dynamo('get_item', { TableName: 'orders', Key: id(order) }, { retries: 2 }));
    assert.equal(done(api, order, 'GetItem').length, 2);
});

test('operations that differ in X-Amz-Target only are different', async () => {
    const order = newOrder();
    good(await dynamo('put_item', { TableName: 'orders', Item: { ...id(order), n: { N: '7' } } }));
    const args = { TableName: 'orders', Key: id(order) };
    assert.equal(good(await dynamo('get_item', args)).Item.n.N, '7');
    good(await dynamo('delete_item', args));
    assert.equal(good(await dynamo('get_item', args)).Item, undefined);
    const bodies = api.of(order).filter((entry) => target(entry) !== 'PutItem').map((entry) => entry.text);
    assert.equal(new Set(bodies).size, 1, 'this is about equal bodies');
    const { QueueUrl } = good(await sqs('create_queue', { QueueName: order }));
    good(await sqs('send_message', { QueueUrl, MessageBody: 'x' }));
    good(await sqs('purge_queue', { QueueUrl }));
    good(await sqs('delete_queue', { QueueUrl }));
    bad(await sqs('get_queue_attributes', { QueueUrl, AttributeNames: ['All'] }));
});

test('DynamoDB: a transaction has a token that the SDK makes for each call, and runs once', async () => {
    const order = newOrder();
    const item = { TableName: 'orders', Key: id(order), UpdateExpression: 'ADD n :one', ExpressionAttributeValues: { ':one': { N: '1' } } };
    for (let n = 0; n < 2; n++) good(await dynamo('transact_write_items', { TransactItems: [{ Update: item }] }));
    const tokens = front.of(order, (entry) => target(entry) === 'TransactWriteItems').map((entry) => JSON.parse(entry.text).ClientRequestToken);
    assert.equal(new Set(tokens).size, 2, 'this is about different tokens');
    assert.equal(await times(order), 1);
});

test('another value of a header that nobody knows is a conflict', async () => {
    const order = newOrder();
    const kg = { headers: { 'X-Unit': 'kg' } };
    const lb = { headers: { 'X-Unit': 'lb' } };
    good(await add(order, kg));
    const raised = bad(await add(order, lb));
    assert.equal(raised.status, 422);
    assert.match(raised.message, /x-unit/);
    assert.equal(await times(order), 1);
    good(await put(order, 'A', kg));
    saysOnly(bad(await put(order, 'A', lb)), 422);
    assert.equal(puts(order), 1);
});

test('two users are two actions, each with an answer of its own', async () => {
    const order = newOrder();
    for (const who of [...users, ...users]) good(await add(order, { who }));
    assert.equal(await times(order), 2);
});

test('DynamoDB: 100 callers at once: one change', async () => {
    const order = newOrder();
    const seen = await hundred(site.aws, order, () => add(order, { retries: 5 }));
    const ids = seen.map((one) => good(one).ResponseMetadata.RequestId);
    assert.equal(new Set(ids).size, 1);
    assert.equal(await times(order), 1);
});

test('SQS: a message is sent once; receiving and deleting work', async () => {
    const order = newOrder();
    const { QueueUrl } = good(await sqs('create_queue', { QueueName: order }));
    const send = () => sqs('send_message', { QueueUrl, MessageBody: `for ${order}` }, { retries: 2 });
    front.trouble('drop', (entry) => target(entry) === 'SendMessage' && here(order)(entry));
    const first = good(await send());
    assert.equal(good(await send()).MessageId, first.MessageId);
    const { Attributes } = good(await sqs('get_queue_attributes', { QueueUrl, AttributeNames: ['All'] }));
    assert.equal(Attributes.ApproximateNumberOfMessages, '1');
    const receive = () => sqs('receive_message', { QueueUrl, VisibilityTimeout: 0, WaitTimeSeconds: 0 }).then(good);
    const [message] = (await receive()).Messages;
    assert.equal(message.Body, `for ${order}`);
    good(await sqs('delete_message', { QueueUrl, ReceiptHandle: message.ReceiptHandle }));
    assert.equal((await receive()).Messages, undefined, 'receiving is asked of the API each time');
});

// Messages are sent to queues of another name, so that the order names nothing but the message.
const queue = async () => good(await sqs('create_queue', { QueueName: newOrder() })).QueueUrl;
const send = (order, QueueUrl, options) => sqs('send_message', { QueueUrl, MessageBody: `for ${order}` }, options);
const length = async (QueueUrl) => {
    const { Attributes } = good(await sqs('get_queue_attributes', { QueueUrl, AttributeNames: ['ApproximateNumberOfMessages'] }));
    return Number(Attributes.ApproximateNumberOfMessages);
};

test('SQS: the answer is lost between gateway and client: the retry gets it, and so does the agent', async () => {
    const [order, to] = [newOrder(), await queue()];
    front.trouble('drop', here(order));
    const first = good(await send(order, to, { retries: 2 }));
    assert.equal(front.of(order).length, 2);
    assert.equal(good(await send(order, to)).MessageId, first.MessageId);
    assert.equal(api.of(order).length, 1);
    assert.equal(await length(to), 1);
});

test('SQS: the answer is lost between API and gateway: raised as in doubt, sent once', async () => {
    const [order, to] = [newOrder(), await queue()];
    api.trouble('drop', here(order));
    for (const retries of [2, 0]) {
        const raised = bad(await send(order, to, { retries }));
        assert.match(raised.message, /may or may not have taken effect/);
        saysOnly(raised, 409);
    }
    assert.equal(api.of(order).length, 1);
    assert.equal(await length(to), 1);
});

test('SQS: two users are two messages, and each gets the own answer again', async () => {
    const [order, to] = [newOrder(), await queue()];
    const ids = [];
    for (const who of [...users, ...users]) ids.push(good(await send(order, to, { who })).MessageId);
    assert.notEqual(ids[0], ids[1]);
    assert.deepEqual(ids.slice(2), ids.slice(0, 2));
    assert.equal(api.of(order).length, 2);
    assert.equal(await length(to), 2);
});

test('SQS: 100 callers at once: one message', async () => {
    const [order, to] = [newOrder(), await queue()];
    const ids = (await hundred(site.aws, order, () => send(order, to, { retries: 5 }))).map((one) => good(one).MessageId);
    assert.equal(new Set(ids).size, 1);
    assert.equal(api.of(order).length, 1);
    assert.equal(await length(to), 1);
});

test('SQS: another value of a header that nobody knows is a conflict', async () => {
    const [order, to] = [newOrder(), await queue()];
    good(await send(order, to, { headers: { 'X-Unit': 'kg' } }));
    const raised = bad(await send(order, to, { headers: { 'X-Unit': 'lb' } }));
    assert.match(raised.message, /x-unit/);
    saysOnly(raised, 422);
    assert.equal(await length(to), 1);
});

test('SQS: what the API rejects is raised as the API says', async () => {
    const raised = bad(await send(newOrder(), `${await queue()}-missing`));
    assert.equal(raised.type, 'QueueDoesNotExist');
    assert.equal(raised.code, 'AWS.SimpleQueueService.NonExistentQueue');
});

const put = (order, text, options) => s3('put_object', { Bucket: 'a-bucket', Key: `k/${order}`, Body: { base64: Buffer.from(text).toString('base64') } }, options);
const held = async (order) => {
    const seen = await s3('get_object', { Bucket: 'a-bucket', Key: `k/${order}` });
    return seen.raised ? seen.raised.code : Buffer.from(seen.value.Body, 'base64').toString();
};
// The code that an SDK shows is the status. That of S3 reads XML only, so this is all that it shows of a problem.
const saysOnly = (raised, status) => {
    assert.deepEqual([raised.status, raised.code], [status, `${status}`], raised.message);
    assert.match(raised.effect, /^ef_/, 'the effect is named in a header');
};
const puts = (order) => site.s3.api.of(order, (entry) => entry.method === 'PUT').length;

test('S3: an object is put once, and its ETag reaches the client, also with the repeat', async () => {
    const order = newOrder();
    const first = good(await put(order, 'A'));
    assert.match(first.ETag, /^"[0-9a-f]{32}"$/);
    assert.equal(good(await put(order, 'A')).ETag, first.ETag);
    assert.equal(puts(order), 1);
    assert.equal(await held(order), 'A');
});

test('S3: put A, B, A: the API holds A; put, delete, put: the object is there', async () => {
    const order = newOrder();
    for (const text of ['A', 'B', 'A']) good(await put(order, text));
    assert.equal(await held(order), 'A');
    good(await s3('delete_object', { Bucket: 'a-bucket', Key: `k/${order}` }));
    assert.equal(await held(order), 'NoSuchKey');
    good(await put(order, 'A'));
    assert.equal(await held(order), 'A');
    assert.equal(puts(order), 4);
});

test('S3: the answer is lost on either side', async () => {
    const order = newOrder();
    site.s3.front.trouble('drop', here(order));
    good(await put(order, 'A', { retries: 2 }));
    assert.equal(puts(order), 1);
    const other = newOrder();
    site.s3.api.trouble('drop', here(other));
    saysOnly(bad(await put(other, 'A', { retries: 2 })), 409);
    assert.equal(puts(other), 1);
});

test('S3: two users put an object each, and have an answer each', async () => {
    const order = newOrder();
    const ids = [];
    for (const who of users)
        for (let n = 0; n < 2; n++) ids.push(good(await put(order, 'A', { who })).ResponseMetadata.RequestId);
    assert.deepEqual(ids, [ids[0], ids[0], ids[2], ids[2]]);
    assert.notEqual(ids[0], ids[2]);
    assert.deepEqual(site.s3.api.of(order).map((entry) => users.findIndex(({ key }) => entry.headers.authorization.includes(key))), [0, 1]);
});

test('S3: 100 callers at once put one object', async () => {
    const order = newOrder();
    const ids = (await hundred(site.s3, order, () => put(order, 'A', { retries: 5 }))).map((one) => good(one).ResponseMetadata.RequestId);
    assert.equal(new Set(ids).size, 1);
    assert.equal(puts(order), 1);
    assert.equal(await held(order), 'A');
});

test('S3: what the API rejects is raised as the API says', async () => {
    const raised = bad(await s3('put_object', { Bucket: 'no-bucket', Key: newOrder(), Body: { base64: 'QQ==' } }));
    assert.deepEqual([raised.type, raised.code], ['NoSuchBucket', 'NoSuchBucket']);
});

// The SDK's own uploads: a large file in parts, several at once.
const upload = (order, bytes, options) => s3('upload_fileobj', {
    Bucket: 'a-bucket', Key: `k/${order}`, Fileobj: { base64: Buffer.alloc(bytes, order).toString('base64'), name: 'a.bin' },
}, options);
const large = 8 * 1024 * 1024 + 3;
const size = async (order) => good(await s3('head_object', { Bucket: 'a-bucket', Key: `k/${order}` })).ContentLength;
const writes = (order) => site.s3.api.of(order, (entry) => ['PUT', 'POST'].includes(entry.method)).length;

test('S3: an upload of the SDK is whole, though answers are lost, and its repeat is a new upload', async () => {
    const order = newOrder();
    for (const part of ['partNumber=1', 'partNumber=2'])
        site.s3.front.trouble('drop', (entry) => here(order)(entry) && entry.path.includes(part));
    site.s3.front.trouble('drop', (entry) => here(order)(entry) && entry.method === 'POST' && entry.path.includes('uploadId'));
    for (let n = 0; n < 2; n++) good(await upload(order, large, { retries: 2 }));
    assert.equal(await size(order), large);
    assert.equal(writes(order), 2 * 4, 'begun, two parts, completed');
    assert.equal(site.s3.front.of(order, (entry) => entry.method !== 'HEAD').length, 4 + 3 + 4);
});

test('S3: uploads in parts set A, B and A, though answers are lost', async () => {
    const order = newOrder();
    for (const bytes of [large, large + 1, large]) {
        site.s3.front.trouble('drop', (entry) => here(order)(entry) && entry.path.includes('partNumber=1'));
        good(await upload(order, bytes, { retries: 2 }));
        assert.equal(await size(order), bytes);
    }
    assert.equal(writes(order), 12, 'three times begun, two parts, completed');
    assert.equal(site.s3.front.of(order, (entry) => entry.method !== 'HEAD').length, 15);
});

test('S3: an upload that was aborted is begun anew', async () => {
    const order = newOrder();
    const where = { Bucket: 'a-bucket', Key: `k/${order}` };
    const begin = async () => good(await s3('create_multipart_upload', where)).UploadId;
    const first = await begin();
    assert.equal(await begin(), first, 'a retry gets the same one');
    good(await s3('abort_multipart_upload', { ...where, UploadId: first }));
    assert.notEqual(await begin(), first);
});

test('S3: two users upload for themselves', async () => {
    const order = newOrder();
    for (const who of users) good(await upload(order, large, { who }));
    assert.equal(writes(order), 8);
    const begun = site.s3.front.of(order, (entry) => entry.path.includes('partNumber=1'));
    assert.equal(new Set(begun.map((entry) => new URLSearchParams(entry.path.split('?')[1]).get('uploadId'))).size, 2);
});

test('S3: 100 callers at once upload one file', async () => {
    const order = newOrder();
    (await hundred(site.s3, order, () => upload(order, 3000, { retries: 5 }))).map(good);
    assert.equal(writes(order), 1);
    assert.equal(await size(order), 3000);
});

test('S3: an upload in parts is whole, and its repeat is a new one with the same result', async () => {
    const order = newOrder();
    const where = { Bucket: 'a-bucket', Key: `k/${order}` };
    const part = Buffer.alloc(5 * 1024 * 1024, order).toString('base64');
    const upload = async () => {
        const { UploadId } = good(await s3('create_multipart_upload', where));
        const Parts = [];
        for (const [index, base64] of [part, Buffer.from('end').toString('base64')].entries()) {
            const { ETag } = good(await s3('upload_part', { ...where, UploadId, PartNumber: index + 1, Body: { base64 } }));
            Parts.push({ ETag, PartNumber: index + 1 });
        }
        return good(await s3('complete_multipart_upload', { ...where, UploadId, MultipartUpload: { Parts } })).ETag;
    };
    const first = await upload();
    const before = site.s3.api.of(order).length;
    assert.equal(await upload(), first);
    assert.equal(site.s3.api.of(order).length, 2 * before);
    const { ContentLength } = good(await s3('head_object', where));
    assert.equal(ContentLength, 5 * 1024 * 1024 + 3);
});

test('a change that waits for approval is raised as not done, and runs once it is approved', async () => {
    const item = newOrder();
    const object = newOrder();
    const message = newOrder();
    const to = await queue();
    const changes = {
        [message]: () => at(site.asking, 'sqs')('send_message', { QueueUrl: to, MessageBody: message }),
        [item]: () => at(site.asking, 'dynamodb')('put_item', { TableName: 'orders', Item: id(item) }),
        [object]: () => at(site.asking, 's3')('put_object', { Bucket: 'a-bucket', Key: `k/${object}`, Body: { base64: 'QQ==' } }),
    };
    await Promise.all(Object.entries(changes).map(async ([order, change]) => {
        const raised = bad(await change());
        if (order !== object) assert.match(raised.message, /A person has to approve this call/);
        saysOnly(raised, 403);
        assert.equal(site.asking.api.of(order).length, 0);
        const seen = await site.approve(order);
        if (order === item) assert.equal(seen.args.headers['x-amz-target'], 'DynamoDB_20120810.PutItem');
        good(await change());
        assert.equal(site.asking.api.of(order).length, 1);
    }));
    assert.ok(good(await dynamo('get_item', { TableName: 'orders', Key: id(item) })).Item);
    assert.equal(await held(object), 'A');
    assert.equal(await length(to), 1);
});

await run();
