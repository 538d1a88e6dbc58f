/*
 * An MCP server that does nothing, as fast as it can: what is measured in front of it is not its
 * own time.
 *
 *     mcp-server         on standard input and output, until the input ends
 *     mcp-server http    Streamable HTTP on a free port of 127.0.0.1, which it prints; until its
 *                        standard input ends
 *
 * It has two tools: `charge`, of which it says nothing, and `look`, which only reads. It is no
 * example of a server: a message is not parsed but searched, which is right for those that the
 * benchmark and the proxy write (no blanks between tokens, the id before the method, the method
 * before anything that a caller chose).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IN_BYTES     ((size_t)1 << 20)
#define OUT_BYTES    ((size_t)256 << 10)
#define ANSWER_BYTES ((size_t)2 << 10) /* the longest, with an id of up to 512 bytes */
#define ID_MAX       512
#define BODY_MAX     ((size_t)8 << 10)
#define CONNECTIONS  512u

/* ---- answers ---------------------------------------------------------------------------------*/

static const struct {
    const char *method, *result;
} answers[] = {
    {"tools/call", "{\"content\":[{\"type\":\"text\",\"text\":\"ch_1 is paid\"}]}"},
    {"initialize", "{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"tools\":{}},"
                   "\"serverInfo\":{\"name\":\"mcp-server\",\"version\":\"1\"}}"},
    {"tools/list",
     "{\"tools\":[{\"name\":\"charge\",\"description\":\"Charges a card.\","
     "\"inputSchema\":{\"type\":\"object\",\"properties\":{\"amount\":{\"type\":\"integer\"},"
     "\"currency\":{\"type\":\"string\",\"default\":\"usd\"},\"order\":{\"type\":\"integer\"}}}},"
     "{\"name\":\"look\",\"description\":\"Looks at a charge.\","
     "\"inputSchema\":{\"type\":\"object\"},\"annotations\":{\"readOnlyHint\":true}}]}"},
    {"ping", "{}"},
};

/* What follows `name` in a message, up to the end of a string or of a plain value; *n is 0 if there
 * is none. */
static const char *member(const char *text, size_t size, const char *name, size_t *n)
{
    const char *p = memmem(text, size, name, strlen(name)), *end = text + size;
    *n = 0;
    if (p == NULL)
        return NULL;
    p += strlen(name);
    const char *q = p;
    if (q < end && *q == '"') {
        q = memchr(q + 1, '"', (size_t)(end - q - 1));
        q = q == NULL ? end : q + 1;
    } else {
        while (q < end && *q != ',' && *q != '}')
            q++;
    }
    *n = (size_t)(q - p);
    return p;
}

/* Writes the answer to a message and returns its length; 0: it is not a request. */
static size_t put_answer(char out[ANSWER_BYTES], const char *text, size_t size)
{
    size_t id_size, method_size;
    const char *id = member(text, size, "\"id\":", &id_size);
    const char *method = member(text, size, "\"method\":", &method_size);
    if (id == NULL || method == NULL || id > method || id_size > ID_MAX)
        return 0;
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        size_t n = strlen(answers[i].method);
        if (method_size == n + 2 && memcmp(method + 1, answers[i].method, n) == 0)
            return (size_t)snprintf(out, ANSWER_BYTES,
                                    "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"result\":%s}", (int)id_size,
                                    id, answers[i].result);
    }
    return (size_t)snprintf(out, ANSWER_BYTES,
                            "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"error\":{\"code\":-32601,"
                            "\"message\":\"Method not found\"}}",
                            (int)id_size, id);
}

/* ---- standard streams ------------------------------------------------------------------------*/

static bool write_all(const char *p, size_t n)
{
    while (n > 0) {
        ssize_t wrote = write(STDOUT_FILENO, p, n);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return false;
        p += wrote;
        n -= (size_t)wrote;
    }
    return true;
}

/* Answers the whole lines of what was read, in as few writes as can be. Returns how many bytes they
 * were; -1: nobody reads the answers. */
static ssize_t answer_lines(const char *in, size_t held)
{
    static char out[OUT_BYTES];
    const char *at = in, *end = in + held, *feed;
    size_t filled = 0;
    while ((feed = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        size_t n = put_answer(out + filled, at, (size_t)(feed - at));
        if (n > 0) {
            filled += n;
            out[filled++] = '\n';
        }
        at = feed + 1;
        if (filled + ANSWER_BYTES >= sizeof out) {
            if (!write_all(out, filled))
                return -1;
            filled = 0;
        }
    }
    return write_all(out, filled) ? at - in : -1;
}

static int serve_streams(void)
{
    static char in[IN_BYTES];
    size_t held = 0;
    while (held < sizeof in) {
        ssize_t n = read(STDIN_FILENO, in + held, sizeof in - held);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0 ? 0 : 1;
        held += (size_t)n;
        ssize_t used = answer_lines(in, held);
        if (used < 0)
            return 1;
        held -= (size_t)used;
        memmove(in, in + used, held);
    }
    fprintf(stderr, "mcp-server: a line is too long\n");
    return 1;
}

/* ---- HTTP ------------------------------------------------------------------------------------*/

typedef struct request {
    size_t n;
    char body[BODY_MAX];
} request;

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned status, const char *text,
                             size_t n, bool opens)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(n, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    if (response == NULL)
        return MHD_NO;
    enum MHD_Result e = MHD_YES;
    if (n > 0)
        e = MHD_add_response_header(response, "Content-Type", "application/json");
    if (e == MHD_YES && opens)
        e = MHD_add_response_header(response, "Mcp-Session-Id", "everybody");
    if (e == MHD_YES)
        e = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return e;
}

/* Called once for the head, once or more for the body, once at its end. */
static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *piece,
                                  size_t *size, void **own)
{
    (void)context, (void)url, (void)version;
    request *r = *own;
    if (r == NULL) {
        *own = r = malloc(sizeof *r);
        if (r != NULL)
            r->n = 0;
        return r == NULL ? MHD_NO : MHD_YES;
    }
    if (*size > 0) {
        if (*size > sizeof r->body - r->n)
            return MHD_NO;
        memcpy(r->body + r->n, piece, *size);
        r->n += *size;
        *size = 0;
        return MHD_YES;
    }
    if (strcmp(method, "POST") != 0)
        return reply(connection, strcmp(method, "DELETE") == 0 ? 200 : 405, "", 0, false);
    char answer[ANSWER_BYTES];
    size_t n = put_answer(answer, r->body, r->n);
    return reply(connection, n > 0 ? 200 : 202, answer, n,
                 memmem(r->body, r->n, "\"method\":\"initialize\"", 21) != NULL);
}

static void on_completed(void *context, struct MHD_Connection *connection, void **own,
                         enum MHD_RequestTerminationCode how)
{
    (void)context, (void)connection, (void)how;
    free(*own);
}

static int serve_http(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, on_request, NULL, MHD_OPTION_SOCK_ADDR,
        (struct sockaddr *)&address, MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL,
        MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS, MHD_OPTION_END);
    const union MHD_DaemonInfo *info =
        daemon == NULL ? NULL : MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT);
    if (info == NULL) {
        fprintf(stderr, "mcp-server: cannot listen\n");
        return 1;
    }
    printf("%u\n", info->port);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    MHD_stop_daemon(daemon);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 1)
        return serve_streams();
    if (argc == 2 && strcmp(argv[1], "http") == 0)
        return serve_http();
    fprintf(stderr, "usage: mcp-server [http]\n");
    return 64;
}
