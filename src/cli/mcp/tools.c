/*
 * The part of semel doctor mcp that starts the server, and lists the class of each of its tools and
 * the reason.
 */
#include "mcp/tools.h"
#include "base/visible.h"
#include "cli/mcp/mcp.h"
#include "mcp/reads.h"

/* The class that the proxy gives a tool, and the reason. */
static const char *class_of(const sm_contracts *set, const mcp_tool *tool, const char **why)
{
    const sm_declared_tool *entry = sm_contracts_tool(set, tool->name);
    if (entry != NULL) {
        *why = entry->contract.variant_count > 0 ? "the contract, which has variants of it"
                                                 : "the contract";
        return sm_class_name(entry->contract.class);
    }
    if (set->unlisted == SM_UNLISTED_HIDE) {
        *why = "not in the contract, which says unlisted: hide";
        return "hidden";
    }
    if (mcp_tool_hinted(tool, set)) {
        *why = "not in the contract; the server annotates it as read-only";
        return "read";
    }
    *why = set->unlisted == SM_UNLISTED_HOLD
               ? "not in the contract, which says unlisted: hold; each call needs an approval"
           : mcp_sounds_like_read(tool->name, tool->description)
               ? "not in the contract, not annotated; it sounds as if it only reads: if so, say "
                 "class: read"
               : "not in the contract, not annotated as read-only";
    return "write";
}

static void put_tools(sm_buf *out, const sm_contracts *set, const mcp_tools *tools)
{
    size_t n = mcp_tools_count(tools), widest = 0;
    for (size_t i = 0; i < n; i++) {
        size_t width = mcp_tools_at(tools, i)->name.n;
        widest = width > widest && width <= 40 ? width : widest;
    }
    for (size_t i = 0; i < n; i++) {
        const mcp_tool *tool = mcp_tools_at(tools, i);
        const char *why, *class = class_of(set, tool, &why);
        sm_buf name;
        sm_buf_init(&name, 8 * SM_TOOL_MAX);
        sm_visible_put(&name, tool->name);
        sm_buf_printf(out, "  %-*.*s  %-16s  %s\n", (int)widest, (int)name.len, name.p, class, why);
        sm_buf_fini(&name);
    }
}

static int tell(const char *contract, const mcp_tools *tools)
{
    sm_contracts *set = NULL;
    size_t n = mcp_tools_count(tools);
    sm_err e = SM_OK;
    int code = CLI_OK;
    if (contract == NULL)
        e = sm_contracts_none(&set);
    else
        code = cli_read_contracts(contract, &set);
    if (e != SM_OK)
        code = cli_fail(cli_code(e), "%s", semel_err_text(e));
    if (code == CLI_OK) {
        sm_buf out;
        sm_buf_init(&out, CLI_OUTPUT_MAX);
        cli_fail(CLI_OK, "the server starts, and lists %zu tool%s%s", n, n == 1 ? "" : "s",
                 n == 0 ? "" : ":");
        put_tools(&out, set, tools);
        fwrite(out.p, 1, out.len, stderr);
        sm_buf_fini(&out);
    }
    sm_contracts_free(set);
    return code;
}

int cli_mcp_tools(char **argv, const char *contract)
{
    cli_mcp_options o = {.argv = argv};
    sm_signals signals = {.fd = -1};
    sm_fault fault = {0};
    mcp_tools *tools;
    if (sm_signals_hold(&signals, &fault) != SM_OK)
        return cli_fail(CLI_INTERNAL, "%s", fault.text);
    int code = cli_mcp_list(&o, &signals, &tools, &fault);
    sm_signals_release(&signals);
    code = code == CLI_OK ? tell(contract, tools) : cli_fail(CLI_DIFFERENT, "%s", fault.text);
    mcp_tools_free(tools);
    return code;
}
