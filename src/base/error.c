/* Names and sentences of the error list, and the one place that writes a fault. */
#include "base/error.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *sm_err_name(sm_err e)
{
    static const char *const names[] = {
#define X(code, sentence) #code,
        SM_ERRORS(X)
#undef X
    };
    assert((unsigned)e < SM_E_COUNT);
    return names[e];
}

const char *sm_err_text(sm_err e)
{
    static const char *const texts[] = {
#define X(code, sentence) sentence,
        SM_ERRORS(X)
#undef X
    };
    assert((unsigned)e < SM_E_COUNT);
    return texts[e];
}

sm_err sm_fault_set(sm_fault *f, sm_err code, const char *format, ...)
{
    if (f == NULL)
        return code;
    memset(f, 0, sizeof *f);
    f->code = code;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
    if (n >= (int)sizeof f->text) {
        size_t cut = sizeof f->text - 1;
        while (cut > 0 && ((unsigned char)f->text[cut - 1] & 0xC0) == 0x80)
            cut--;
        if (cut > 0 && (unsigned char)f->text[cut - 1] >= 0xC0)
            cut--;
        f->text[cut] = '\0';
    }
    return code;
}
