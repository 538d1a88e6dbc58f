/* semel mcp --suggest: prints a contract to start from, made of what the server says of its tools.
 */
#include <string.h>

#include "cli/mcp/mcp.h"
#include "mcp/mcp.h"
#include "mcp/suggest.h"

/* Prints what was found out. */
static int print(const cli_mcp_options *o, const mcp_tools *tools)
{
    sm_buf line, out;
    char name[MCP_NAME_MAX] = "server";
    sm_buf_init(&line, 65536);
    sm_buf_init(&out, CLI_OUTPUT_MAX);
    if (o->argv == NULL) {
        sm_buf_text(&line, "--upstream ...");
    } else {
        for (char **word = o->argv; *word != NULL; word++)
            sm_buf_printf(&line, "%s%s", word == o->argv ? "-- " : " ", *word);
        const char *slash = strrchr(o->argv[0], '/');
        snprintf(name, sizeof name, "%.100s", slash == NULL ? o->argv[0] : slash + 1);
    }
    if (o->name != NULL)
        snprintf(name, sizeof name, "%s", o->name);
    sm_buf_byte(&line, '\0');
    sm_err e = mcp_suggest_put(tools, sm_str_from(name), line.p, &out);
    int code = e == SM_OK ? cli_write(&out) : cli_fail(cli_code(e), "%s", semel_err_text(e));
    sm_buf_fini(&out);
    sm_buf_fini(&line);
    return code;
}

int cli_mcp_suggest(const cli_mcp_options *o, sm_signals *signals)
{
    sm_fault fault = {0};
    mcp_tools *tools;
    int code = cli_mcp_list(o, signals, &tools, &fault);
    code = code == CLI_OK ? print(o, tools) : cli_fail(code, "%s", fault.text);
    mcp_tools_free(tools);
    return code;
}
