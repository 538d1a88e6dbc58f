/* Lists and reports on their way out. */
#include "api/operation.h"
#include "base/utf8.h"
#include "json/write.h"

void sm_page_start(sm_page *p)
{
    p->items = 0;
    sm_buf_init(&p->out, SM_ARENA_MAX);
    sm_buf_byte(&p->out, '{');
    sm_put_open(&p->out, "items", '[');
}

void sm_page_item(sm_page *p)
{
    p->items++;
    sm_put_item(&p->out);
}

bool sm_page_full(const sm_page *p)
{
    return p->out.len > SM_PAGE_BYTES || p->out.err != SM_OK;
}

void sm_op_json(sm_operation *op, semel_answer *a, const sm_buf *out)
{
    if (out->err == SM_OK)
        op->door->json(op, sm_buf_view(out));
    else
        sm_op_fault(op, a, out->err, &(sm_fault){0});
}

void sm_op_report(sm_operation *op, const semel_answer *a, semel_err e, sm_str json)
{
    if (e == SEMEL_OK)
        op->door->json(op, json);
    else
        op->door->answer(op, a);
}

void sm_page_reply(sm_operation *op, semel_answer *a, sm_page *p, uint64_t cursor, sm_err e,
                   const sm_fault *fault)
{
    sm_buf_byte(&p->out, ']');
    if (cursor != 0)
        sm_buf_printf(&p->out, ",\"cursor\":\"%llu\"", (unsigned long long)cursor);
    sm_buf_byte(&p->out, '}');
    if (e == SM_OK)
        sm_op_json(op, a, &p->out);
    else
        sm_op_fault(op, a, e, fault);
    sm_buf_fini(&p->out);
}

void sm_put_utf8(sm_buf *out, const char *name, sm_str text)
{
    if (sm_utf8_valid(text))
        sm_put_text(out, name, text);
}
