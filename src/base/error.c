/* The one place that writes a fault. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
