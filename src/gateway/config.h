/*
 * The gateway's configuration: a YAML file, read by tables like contracts are, so that every
 * mistake in it is found at once, with its place and what was probably meant.
 *
 * A configuration is immutable once read. Values of ${NAME} come from the environment and are put
 * in when they are used, so that secrets are in no structure that anything prints.
 */
#ifndef SM_GATEWAY_CONFIG_H
#define SM_GATEWAY_CONFIG_H

#include "core/contract.h"
#include "core/report.h"

/* Where something was said, for messages about it. */
typedef struct gw_place {
    const char *name;      /* of the field; of the option or variable that said it instead */
    uint32_t line, column; /* in the configuration's file; 0: it is not there */
} gw_place;

/* Where to listen. */
typedef struct gw_listen {
    sm_str text;   /* as written: 127.0.0.1:8787, [::1]:8787, unix:/run/semel/semel.sock */
    sm_str host;   /* an address; absent for a Unix socket */
    uint16_t port; /* 0: any that is free */
    sm_str path;   /* of a Unix socket; absent: TCP */
    bool loopback;
    gw_place place;
} gw_listen;

typedef struct gw_listens {
    const gw_listen *v;
    uint32_t n;
} gw_listens;

typedef struct gw_texts {
    const sm_str *v;
    uint32_t n;
} gw_texts;

typedef struct gw_tls {
    bool on;
    sm_str certificate, key; /* files */
} gw_tls;

/* Who somebody is that comes to a proxy's own address without a token. */
typedef struct gw_client {
    bool on;
    sm_str name;  /* the actor in the audit trail */
    sm_str scope; /* the client acts in it, and in scopes below it */
    gw_place place;
} gw_client;

/* What becomes of a key that the client made: it names the action, or it is left out, because the
 * client makes a new one for every call. */
typedef enum gw_client_key { GW_KEY_HONOUR, GW_KEY_IGNORE } gw_client_key;

/* One API behind /proxy/NAME/. Its unsafe calls are calls of the tool proxy.NAME, with the
 * arguments that proxy/args.c makes. */
typedef struct gw_upstream_api {
    sm_str name;
    sm_str url; /* the base: scheme, host, and a path without a slash at its end */
    sm_headers headers;
    int64_t timeout_ms;
    sm_idempotency idempotency; /* the header that the upstream takes a key in */
    sm_retry retry;
    bool rejects_before_work;
    sm_pointer cost, tokens; /* where a write's answer says what it cost; absent: nowhere */
    bool stream; /* a write's answer is passed on as it comes, and recorded when it has ended */
    gw_listens listen; /* addresses of its own, where it is mounted at / */
    bool pass_host;    /* the upstream gets the client's Host */
    gw_client client;
    int preset;                                /* of gw_preset_names; 0: none */
    sm_contracts *contracts;                   /* the preset's, for its tool; NULL: none */
    int client_key;                            /* gw_client_key */
    gw_texts identity_headers, ignore_headers; /* beside those that proxy/args.c knows */
    bool mcp; /* an MCP server: of its clients' headers only the protocol's are passed on */
    gw_place place;
} gw_upstream_api;

typedef struct gw_apis {
    const gw_upstream_api *v;
    uint32_t n;
} gw_apis;

/* One MCP server behind /mcp/NAME: a command that is started, or a URL. */
typedef struct gw_mcp_server {
    sm_str name;
    gw_texts command; /* each ends with a NUL; n == 0: url */
    sm_headers env;   /* for the command, by unique names; values may hold ${NAME} */
    sm_str directory; /* seen from the configuration's, ends with a NUL; absent: ours */
    sm_str url;
    sm_headers headers; /* with every request to the url; values may hold ${NAME} */
    gw_place place;
} gw_mcp_server;

typedef struct gw_mcps {
    const gw_mcp_server *v;
    uint32_t n;
} gw_mcps;

typedef struct gw_limits {
    int64_t body_bytes;              /* of a request; 1 MiB */
    int64_t result_bytes;            /* of an upstream's answer that is passed on; 16 MiB */
    int64_t connections;             /* 12000 */
    int64_t connections_per_address; /* 0: no bound */
    int64_t in_flight;               /* executions at once; 2000 */
    int64_t waiting;                 /* requests that wait for something; 10000 */
    int64_t streams;                 /* of events at once; 64 */
    int64_t request_ms;              /* for a request to arrive whole; 10 s */
    int64_t idle_ms;                 /* of a connection between requests; 75 s */
    int64_t wait_ms;                 /* the most that wait_ms may ask for; 5 min */
} gw_limits;

typedef enum gw_log_format { GW_LOG_TEXT, GW_LOG_JSON } gw_log_format;
typedef enum gw_log_requests { GW_LOG_WRITES, GW_LOG_ALL, GW_LOG_NONE } gw_log_requests;

typedef struct gw_log_rule {
    int format;   /* gw_log_format */
    int level;    /* 0 debug, 1 info, 2 warn, 3 error */
    int requests; /* which requests get a line: those that ran something or failed, all, none */
} gw_log_rule;

/* The fields whose values name something outside of the file. */
typedef enum gw_named {
    GW_NAMED_CERTIFICATE,
    GW_NAMED_KEY,
    GW_NAMED_LEDGER,
    GW_NAMED_CONTRACT,
    GW_NAMED_TOKENS,
    GW_NAMED_SEAL_KEY,
    GW_NAMED_CA_FILE,
    GW_NAMED
} gw_named;

typedef struct gw_config {
    sm_arena arena;
    sm_str file;     /* its name; absent: the built-in configuration */
    int64_t version; /* of the file's form: 1 */
    gw_listens listen;
    gw_tls tls;
    bool behind_proxy; /* a reverse proxy in front of us speaks TLS */
    gw_texts hosts;    /* names that Host may have, beside addresses that we listen on */
    gw_texts origins;  /* of pages that may call us */
    sm_str ledger;     /* a URL; may hold ${NAME} */
    sm_str contract;   /* a file; names of files end with a NUL, and those that the configuration
                          gives are seen from its directory */
    sm_str tokens;     /* likewise; absent only if there is no home directory either */
    sm_str seal_key;   /* likewise */
    sm_str ca_file;    /* certificates to trust for upstreams; absent: the system's */
    gw_apis proxies;
    gw_mcps mcp;
    gw_limits limits;
    gw_log_rule log;
    int64_t drain_ms; /* how long SIGTERM waits for what is under way; 30 s */
    int64_t threads;  /* of the HTTP server; 0: one for every two processors, at most 4 */
    gw_place places[GW_NAMED];
} gw_config;

/* Reads a file's text. On failure *out is NULL; `report` must have been made with the same text. */
sm_err gw_config_read(sm_str name, sm_str text, gw_config **out, sm_report *report);

/* What applies without a file: 127.0.0.1:8787, the user's own ledger and tokens. */
sm_err gw_config_default(gw_config **out);

void gw_config_free(gw_config *c); /* accepts NULL */

/* Reads one address as it is written under `listen`. The texts are made in the arena and end with a
 * NUL; the path of a Unix socket is seen from `directory`. SEMEL_E_INVALID with a sentence. */
sm_err gw_listen_read(sm_arena *a, sm_str text, sm_str directory, gw_listen *out, sm_fault *fault);

/* A file's name as seen from a directory (absent or empty: as it is); `p` is NULL when out of
 * memory. */
sm_str gw_path_from(sm_arena *a, sm_str directory, sm_str path);

/* Address number `i`: first those of the gateway, then those of each proxy, which *api is then
 * (else NULL). NULL: there is no such number. */
#define GW_ADDRESSES_MAX 32u
const gw_listen *gw_config_address(const gw_config *c, uint32_t i, const gw_upstream_api **api);

/* What must not be started: a non-loopback address without TLS or a stated reverse proxy; one where
 * clients need no token; two listeners with one address; anything without a place for tokens. The
 * fault has the place in the file, if it has one there. */
sm_err gw_config_safe(const gw_config *c, sm_fault *fault);

/* A fault about something that the configuration says: "NAME: ..." and its place. */
sm_err gw_config_fault(sm_fault *fault, sm_err e, const gw_place *at, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Told one thing that is wrong. */
typedef void gw_tell_fn(void *context, const sm_fault *fault);

/* Looks at the files that a configuration names, but for the tokens: that each can be read, and
 * that those for TLS are a certificate and its key. What is wrong is told, each with its place;
 * returns which they were, as bits 1 << gw_named. (config/files.c) */
unsigned gw_config_files(const gw_config *c, gw_tell_fn *tell, void *context);

/* Looks for the commands of MCP servers and the directories that they start in, as starting them
 * would. Tells each server that could not be started; returns how many. (config/files.c) */
unsigned gw_config_commands(const gw_config *c, gw_tell_fn *tell, void *context);

/* The ledger's URL with its variables put in; a NUL ends it. It may hold a password: wipe it. */
sm_err gw_config_ledger(const gw_config *c, sm_buf *out, sm_fault *fault);

/* Tells each variable of the environment that is not set and that a proxy or an MCP server needs,
 * for a header or in env; returns how many. (variables.c) */
unsigned gw_config_variables(const gw_config *c, gw_tell_fn *tell, void *context);

/* The same of contracts: findings about the headers of upstreams, each variable once. `report` was
 * made with the contracts' text. */
void gw_contract_variables(const sm_contracts *set, sm_severity severity, sm_report *report);

/* A text with its ${NAME}s put in. SEMEL_E_INVALID, naming the variable, if one is not set. */
sm_err gw_expand(sm_str text, sm_buf *out, sm_fault *fault);

/* Internal to the configuration's files: the table of a whole file, and what its readers need. */
typedef struct gw_config_loader {
    sm_loader l;      /* readers are given this */
    sm_str directory; /* of the file; names of files are seen from it */
} gw_config_loader;
extern const sm_group gw_config_group;
gw_place gw_place_of(sm_loader *l, const char *name, const sm_json *value);
void gw_read_path(sm_loader *l, const sm_json *value, void *out);    /* sm_str */
void gw_read_listen(sm_loader *l, const sm_json *value, void *out);  /* gw_listens */
void gw_read_proxies(sm_loader *l, const sm_json *value, void *out); /* gw_apis; config/behind.c */
void gw_read_mcp(sm_loader *l, const sm_json *value, void *out);     /* gw_mcps; config/behind.c */

#endif
