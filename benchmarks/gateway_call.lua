-- What wrk sends to POST /v1/call, and to whatever is measured beside it: the sample call of 226
-- bytes with a bearer token.
--
--   SEMEL_BENCH_TOKEN  the token
--   SEMEL_BENCH_PATH   another path: one below /proxy/, where the same bytes are the body
--   SEMEL_BENCH_FRESH  a number of at most four digits: every call is about another order, and no
--                      other number has the same orders. Absent: all calls are equal

local head = "POST " .. (os.getenv("SEMEL_BENCH_PATH") or "/v1/call")
    .. " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    .. "Semel-Scope: order-000000123\r\n"
    .. "Authorization: Bearer " .. os.getenv("SEMEL_BENCH_TOKEN") .. "\r\n"
local before = '{"scope":"order-'
local behind = '","tool":"stripe.charge","args":{"amount":1000,"currency":"usd",'
    .. '"customer":"cus_9s6XKzkNRiz8i3","description":"Order 123","lines":['
    .. '{"sku":"A1","qty":2,"price":9.99},{"sku":"B2","qty":1,"price":19.5}]}}'
local fresh = tonumber(os.getenv("SEMEL_BENCH_FRESH") or "0")

-- The same number of digits for all, so that the bodies have one length.
local function call(order)
    local body = before .. order .. behind
    return head .. "Content-Length: " .. #body .. "\r\n\r\n" .. body
end

local threads = 0
function setup(thread)
    thread:set("thread_number", threads)
    threads = threads + 1
end

local equal = call("000000123")
local count = 0
function request()
    if fresh == 0 then
        return equal
    end
    count = count + 1
    return call(string.format("%04d%d%07d", fresh, thread_number, count))
end
