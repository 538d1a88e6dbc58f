/* The rules of headers. */
#include "base/header.h"

#include <strings.h>

bool sm_header_name(sm_str name)
{
    static const char rare[] = "!#$%&'*+.^_`|~";
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        bool usual = sm_is_alpha(c) || c == '-' || sm_is_digit(c);
        if (!usual && memchr(rare, c, sizeof rare - 1) == NULL)
            return false;
    }
    return name.n > 0;
}

bool sm_header_value(sm_str value)
{
    for (size_t i = 0; i < value.n; i++) {
        unsigned char c = (unsigned char)value.p[i];
        if ((c < 0x20 && c != '\t') || c == 0x7F)
            return false;
    }
    return true;
}

bool sm_header_is(sm_str name, sm_str other)
{
    return name.n == other.n && strncasecmp(name.p, other.p, name.n) == 0;
}

sm_str sm_header_find(const sm_http_field *fields, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (sm_header_is(fields[i].name, sm_str_from(name)))
            return fields[i].value;
    }
    return (sm_str){0};
}

/* A character of a header's name in the variable that CGI-like servers make of it. */
static int as_variable(char c)
{
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return letter ? c | 32 : c >= '0' && c <= '9' ? c : '_';
}

bool sm_header_alike(sm_str name, sm_str other)
{
    bool alike = name.n == other.n;
    for (size_t i = 0; alike && i < name.n; i++)
        alike = name.p[i] == other.p[i] || as_variable(name.p[i]) == as_variable(other.p[i]);
    return alike;
}

/* ---- types of content ------------------------------------------------------------------------*/

sm_str sm_header_trim(sm_str s)
{
    while (s.n > 0 && (s.p[0] == ' ' || s.p[0] == '\t'))
        s = (sm_str){s.p + 1, s.n - 1};
    while (s.n > 0 && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

/* The parts before and after the first semicolon; the second is absent without one. */
static sm_str split_type(sm_str value, sm_str *parameters)
{
    const char *mark = value.n == 0 ? NULL : memchr(value.p, ';', value.n);
    *parameters = (sm_str){0};
    if (mark == NULL)
        return sm_header_trim(value);
    size_t n = (size_t)(mark - value.p);
    *parameters = (sm_str){mark + 1, value.n - n - 1};
    return sm_header_trim((sm_str){value.p, n});
}

static bool says_utf8(sm_str parameters)
{
    sm_str p = sm_header_trim(parameters);
    return sm_header_is(p, SM_STR("charset=utf-8")) || sm_header_is(p, SM_STR("charset=\"utf-8\""));
}

bool sm_type_is(sm_str value, const char *type)
{
    sm_str parameters, name = split_type(value, &parameters);
    return sm_header_is(name, sm_str_from(type)) && (parameters.p == NULL || says_utf8(parameters));
}

bool sm_type_is_utf8(sm_str value)
{
    sm_str parameters;
    split_type(value, &parameters);
    for (size_t i = 0; i + 7 <= parameters.n; i++) {
        if (strncasecmp(parameters.p + i, "charset", 7) == 0)
            return says_utf8(parameters);
    }
    return true;
}

bool sm_header_framing(sm_str name)
{
    static const char *const names[] = {
        "connection", "content-length",    "expect",  "keep-alive", "proxy-connection", "te",
        "trailer",    "transfer-encoding", "upgrade",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (sm_header_is(name, sm_str_from(names[i])))
            return true;
    }
    return false;
}

bool sm_header_method(sm_str name)
{
    static const char *const names[] = {"x-http-method-override", "x-http-method",
                                        "x-method-override", "x-original-method"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (sm_header_alike(name, sm_str_from(names[i])))
            return true;
    }
    return false;
}

/* ---- paths -----------------------------------------------------------------------------------*/
