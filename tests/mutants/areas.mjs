// Where mistakes are planted, and which suites are to notice those that pass the unit tests.
export const areas = {
    core: { folders: ['src/core/'], suites: ['cli', 'ledger-cli', 'proxy'] },
    ledger: {
        folders: ['src/ledger/'],
        suites: ['run', 'crash', 'clocks', 'ledger-cli', 'gateway', 'gateway-lost'],
    },
    serve: {
        folders: ['src/serve/'],
        suites: ['run', 'mcp', 'gateway', 'gateway-lost', 'gateway-crash', 'proxy'],
    },
    effect: { folders: ['src/effect/'], suites: ['run', 'mcp-cli', 'mcp'] },
    store: {
        folders: ['src/store/'],
        suites: ['failed-sync', 'crash', 'conformance', 'ledger-servers', 'servers', 'outage'],
    },
    gateway: {
        folders: ['src/gateway/', 'src/api/', 'src/upstream/'],
        suites: [
            'gateway-cli',
            'proxy',
            'gateway',
            'gateway-lost',
            'gateway-upstreams',
            'gateway-crash',
            'mcp-http',
        ],
    },
    mcp: { folders: ['src/mcp/'], suites: ['mcp-cli', 'mcp', 'mcp-http', 'mcp-counting'] },
};
