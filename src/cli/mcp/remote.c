/* The server behind --upstream. */
#include "cli/mcp/mcp.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/header.h"
#include "gateway/config.h"

sm_err cli_mcp_remote_make(const cli_mcp_options *o, cli_mcp_remote *out, sm_fault *fault)
{
    sm_err e = sm_http_start(NULL, &out->options.http, fault);
    out->options.url = sm_str_from(o->upstream);
    out->options.headers = out->fields;
    for (int i = 0; e == SM_OK && i < o->headers; i++) {
        const char *text = o->header[i], *colon = strchr(text, ':');
        sm_buf *value = &out->texts[i];
        if (colon == NULL || !sm_header_name((sm_str){text, (size_t)(colon - text)}))
            return sm_fault_set(fault, SEMEL_E_INVALID,
                                "--header takes NAME: VALUE, such as 'Authorization: Bearer "
                                "${TOKEN}'");
        sm_buf_init(value, 65536);
        e = gw_expand(sm_str_from(colon + 1 + strspn(colon + 1, " ")), value, fault);
        out->fields[i] =
            (sm_http_field){.name = {text, (size_t)(colon - text)}, .value = sm_buf_view(value)};
        out->options.header_count++;
    }
    return e;
}

void cli_mcp_remote_free(cli_mcp_remote *r)
{
    /* The end of the session is on its way to the server. */
    int64_t deadline = sm_clock_deadline_ns(2000);
    while (r->options.http != NULL && sm_http_under_way(r->options.http) > 0 &&
           sm_clock_mono_ns() < deadline)
        usleep(10000);
    sm_http_stop(r->options.http);
    sm_http_free(r->options.http);
    for (int i = 0; i < CLI_MCP_HEADERS; i++) {
        if (r->texts[i].p != NULL)
            explicit_bzero(r->texts[i].p, r->texts[i].cap);
        sm_buf_fini(&r->texts[i]);
    }
}
