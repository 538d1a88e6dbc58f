/* Forms of requests through the reverse proxy: which names are clear, which parameters count. */
#include "gateway/proxy/form.h"

#include "unit.h"

static bool reads_with(sm_arena *a, const char *query, const char *form)
{
    sm_buf out;
    sm_buf_init(&out, SM_ARENA_MAX);
    bool right = gw_form_urlencoded(a, sm_str_from(query), sm_str_from(form), &out);
    sm_buf_fini(&out);
    return right;
}

static bool reads(sm_arena *a, const char *form)
{
    return reads_with(a, "", form);
}

static void names_that_all_servers_read_alike_are_fields(void **state)
{
    static const char *const forms[] = {
        "",
        "a=1&b=2",
        "a=1&a=2",
        "a[]=1&a[]=2",
        "a[b]=1&a[c]=2&a[c]=3",
        "a[b][]=1&a[b][]=2&a[c][d]=3",
        "items[0][price]=1&items[1][price]=2",
        "payment_method=1&payment_method_types[]=2&payment_method_options[card]=3",
        "id=1&_id=2",
        "a.b=1&a.c=2",
        "a=%3B",
    };
    for (size_t i = 0; i < COUNT(forms); i++)
        expect(reads(*state, forms[i]), "%s", forms[i]);
}

static void names_that_some_server_takes_for_one_are_not(void **state)
{
    static const char *const forms[] = {
        "a=1;b=2",
        "a=1&b=2;3",
        "a=1&a[]=2",
        "a=1&a[b]=2",
        "a=1&b=2&a[b][c]=3",
        "a[]=1&a[0]=2",
        "a[b]=1&a[b][]=2",
        "a[b]=1&a[b][c]=2",
        "a[][b]=1&a[][c]=2",
        "a=1&A=2",
        "a.b=1&a_b=2",
        "a+b=1&a_b=2",
        "+a=1&a=2",
        "?a=1&a=2",
        "?a=1",
        "%3Fa=1",
        "#a=1",
        "b=1&?a=1",
        "+a=1",
        "b=1&%09a=1",
        "a+=1",
        "a%C2%A0=1",
        "\357\273\277a=1",
        "%EF%BB%BFa=1",
        "%EF%BB%BF%EF%BB%BF?a=1",
        "%E1%9A%80a=1",
        "a%E2%80%8B=1&a=2",
        "a%00b=1",
        "[a]=1",
        "a]=1",
        "a[b=1",
        "a[b]c=1",
        "a[[b]]=1",
    };
    for (size_t i = 0; i < COUNT(forms); i++)
        expect(!reads(*state, forms[i]), "%s", forms[i]);
}

static void a_name_that_is_in_the_query_too_is_not_a_field(void **state)
{
    static const struct {
        const char *query, *form;
        bool right;
    } rows[] = {
        {"b=2", "a=1", true},
        {"a.b=1&a_b=2&b[c]=1&b=2", "a=1&c=1", true},
        {"&&", "a=1", true},
        {"a=2", "a=1", false},
        {"a", "a=1", false},
        {"x=1&%61=2", "a=1", false},
        {"x=1;a=2", "a=1", false},
        {"A=2", "a=1", false},
        {"a[]=2", "a=1", false},
        {"a=2", "a[b]=1", false},
        {"a[b]=2", "a=1", false},
        {"a=2&a[b]=2", "a[c]=1", false},
        {"a=2&a=2", "0=1&a=1&b=1", false},
        {"b=2&b[c]=1", "a=1&b[d]=1", false},
        {"a[b]=2&a[d]=2", "a[c]=1", true},
        {"a%00=2", "b=1", false},
        {"a%ff=2", "b=1", false},
        {"x[=2", "b=1", false},
        {"?a=2", "a=1", false},
        {"?x=2", "b=1", false},
        {"%EF%BB%BFx=2", "b=1", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect(reads_with(*state, rows[i].query, rows[i].form) == rows[i].right, "?%s %s",
               rows[i].query, rows[i].form);
}

static void more_fields_than_some_servers_read_are_not_a_form(void **state)
{
    sm_buf body, out;
    sm_buf_init(&body, SM_ARENA_MAX);
    sm_buf_init(&out, SM_ARENA_MAX);
    for (int i = 0; i < 1000; i++)
        sm_buf_printf(&body, "f%d=1&", i);
    assert_true(gw_form_urlencoded(*state, SM_STR(""), sm_buf_view(&body), &out));
    sm_buf_text(&body, "one=1");
    assert_false(gw_form_urlencoded(*state, SM_STR(""), sm_buf_view(&body), &out));
    sm_buf_fini(&body);
    sm_buf_fini(&out);
}

static void a_boundary_that_servers_may_read_otherwise_is_none(void **state)
{
    static const struct {
        const char *type, *boundary; /* NULL: absent */
    } rows[] = {
        {"multipart/form-data; boundary=x", "x"},
        {"multipart/form-data;charset=UTF-8;Boundary=\"x;y z\"", "x;y z"},
        {"multipart/form-data", NULL},
        {"multipart/form-data; boundary=", NULL},
        {"multipart/form-data; boundary=\"\"", NULL},
        {"multipart/form-data; boundary=x; boundary=x", NULL},
        {"multipart/form-data; boundary=x; boundary*=utf-8''y", NULL},
        {"multipart/form-data; boundary=x; boundary*0=y", NULL},
        {"multipart/form-data; boundary=x; boundary =y", NULL},
        {"multipart/form-data; boundary=x; a=1", NULL},
        {"multipart/form-data; boundary=x; charset=utf-7", NULL},
        {"multipart/form-data; boundary=x; charset=utf-8; charset=utf-7", NULL},
        {"multipart/form-data; boundary='x'", NULL},
        {"multipart/form-data; boundary=x y", NULL},
        {"multipart/form-data; boundary=x,y", NULL},
        {"multipart/form-data; boundary=\"=?utf-8?Q?x?=\"", NULL},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_str found = gw_form_boundary(*state, sm_str_from(rows[i].type));
        expect((found.p == NULL) == (rows[i].boundary == NULL), "%s", rows[i].type);
        if (rows[i].boundary != NULL)
            expect_text(found, rows[i].boundary);
    }
}

static bool reads_parts(sm_arena *a, sm_str body)
{
    sm_digest digest;
    sm_buf out;
    assert_int_equal(sm_digest_init(&digest), SM_OK);
    sm_buf_init(&out, SM_ARENA_MAX);
    bool right = gw_form_multipart(a, &digest, SM_STR(""), body, SM_STR("b"), &out);
    sm_buf_fini(&out);
    sm_digest_fini(&digest);
    return right;
}

static bool reads_part(sm_arena *a, const char *head)
{
    return reads_parts(a, sm_arena_printf(a, "--b\r\n%s\r\n\r\n1\r\n--b--\r\n", head));
}

static void a_part_whose_name_servers_may_read_otherwise_is_not_a_field(void **state)
{
#define PART "Content-Disposition: form-data; name=\"x\""
    static const char *const right[] = {
        PART,
        "content-disposition:form-data;NAME=x",
        PART "; filename=\"it's.txt\"\r\nContent-Type: text/plain; charset=utf-8",
    };
    static const char *const odd[] = {
        PART "; name*=utf-8''amount",
        PART "; name*0=amo; name*1=unt",
        PART "; filename*=utf-8''a",
        PART "; name =amount",
        PART "; name=amount",
        PART "; y='; name=amount; z='",
        "Content-Disposition: form-data; name='amount'",
        "Content-Disposition: form-data; name=a b",
        "Content-Disposition: form-data; name=\"=?utf-8?Q?amount?=\"",
        "Content-Disposition: form-dataname=x",
        PART "\r\nContent-Disposition : form-data; name=\"amount\"",
        PART "\r\nX-A: 1\nContent-Disposition: form-data; name=\"amount\"",
        PART "\r\n folded: 1",
    };
#undef PART
    for (size_t i = 0; i < COUNT(right); i++)
        expect(reads_part(*state, right[i]), "%s", right[i]);
    for (size_t i = 0; i < COUNT(odd); i++)
        expect(!reads_part(*state, odd[i]), "%s", odd[i]);
}

static void parts_that_servers_may_cut_otherwise_are_not_a_form(void **state)
{
#define HEAD "Content-Disposition: form-data; name=x\r\n\r\n"
    static const struct {
        const char *body;
        bool right;
    } rows[] = {
        {"--b\r\n" HEAD "1\r\n--b--\r\n", true},
        {"--b\r\n" HEAD "1\r\n--b--", true},
        /* The first line is not the boundary, or has more text after it. */
        {"--c\r\n" HEAD "1\r\n--b--\r\n", false},
        {"-b-\r\n" HEAD "1\r\n--b--\r\n", false},
        {"--bc\n" HEAD "1\r\n--b--\r\n", false},
        {"--b\n\n" HEAD "1\r\n--b--\r\n", false},
        /* A line begins with it, but not behind CR LF; no line does. */
        {"--b\r\n" HEAD "1\n--b\r\n--b--", false},
        {"--b\r\n" HEAD "1\r--b\r\n--b--", false},
        {"--b\r\n" HEAD "--b\r\n--b--", false},
        {"--b\r\n" HEAD "1--b\r\n--b--", true},
    };
#undef HEAD
    for (size_t i = 0; i < COUNT(rows); i++)
        expect(reads_parts(*state, sm_str_from(rows[i].body)) == rows[i].right, "%s", rows[i].body);
}

static void a_dropped_parameter_leaves_the_others(void **state)
{
    static const struct {
        const char *value, *left;
    } rows[] = {
        {"multipart/form-data; boundary=x", "multipart/form-data"},
        {"multipart/form-data; charset=utf-8; boundary=x", "multipart/form-data; charset=utf-8"},
        {"multipart/form-data;boundary=\"x;y\" ; charset=utf-8",
         "multipart/form-data; charset=utf-8"},
        {"multipart/form-data ; a=1; BOUNDARY=x; b=2", "multipart/form-data; a=1; b=2"},
        {"text/plain; charset=utf-8", "text/plain; charset=utf-8"},
        {"text/plain", "text/plain"},
        {"text/plain; odd; boundary=x", "text/plain; odd; boundary=x"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect_text(gw_parameter_drop(*state, sm_str_from(rows[i].value), "boundary"),
                    rows[i].left);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_arena(names_that_all_servers_read_alike_are_fields),
        with_arena(names_that_some_server_takes_for_one_are_not),
        with_arena(a_name_that_is_in_the_query_too_is_not_a_field),
        with_arena(more_fields_than_some_servers_read_are_not_a_form),
        with_arena(a_boundary_that_servers_may_read_otherwise_is_none),
        with_arena(a_part_whose_name_servers_may_read_otherwise_is_not_a_field),
        with_arena(parts_that_servers_may_cut_otherwise_are_not_a_form),
        with_arena(a_dropped_parameter_leaves_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
