/* Folding: one table of characters that do not count, and the few letters beyond ASCII that fold
 * into ASCII. */
#include "base/fold.h"

#include <stddef.h>

#include "base/utf8.h"

/* What does not count, in order. */
static const struct {
    uint32_t first, last;
} uncounted[] = {
    {0x00, 0x20},       /* controls and the blank */
    {0x2D, 0x2D},       /* - */
    {0x5F, 0x5F},       /* _ */
    {0x7F, 0xA0},       /* more controls, and a blank */
    {0xAD, 0xAD},       /* a hyphen that is not shown */
    {0x1680, 0x1680},   /* a blank */
    {0x2000, 0x200F},   /* blanks, joiners, marks of direction */
    {0x2028, 0x202F},   /* line separators, directions, a blank */
    {0x205F, 0x206F},   /* a blank, and invisible operators */
    {0x3000, 0x3000},   /* a blank */
    {0xD800, 0xDFFF},   /* half of a surrogate pair */
    {0xFE00, 0xFE0F},   /* variation selectors */
    {0xFEFF, 0xFEFF},   /* the byte order mark */
    {0xFFF9, 0xFFFF},   /* the replacement character, annotations, noncharacters */
    {0xE0000, 0xE0FFF}, /* tags */
};

uint32_t sm_fold(uint32_t cp)
{
    if (cp > 0x20 && cp < 0x7F && cp != '_' && cp != '-')
        return cp >= 'A' && cp <= 'Z' ? cp | 0x20 : cp;
    switch (cp) {
    case 0x17F: return 's';
    case 0x212A: return 'k';
    case 0x130:
    case 0x131: return 'i';
    }
    for (size_t i = 0; i < sizeof uncounted / sizeof uncounted[0]; i++) {
        if (cp >= uncounted[i].first && cp <= uncounted[i].last)
            return 0;
    }
    return cp;
}

/* The code point of a well-formed sequence. */
static uint32_t value_of(const unsigned char *p, size_t step)
{
    if (step == 1)
        return p[0];
    uint32_t cp = p[0] & (0x7Fu >> step);
    for (size_t i = 1; i < step; i++)
        cp = cp << 6 | (p[i] & 0x3Fu);
    return cp;
}

uint32_t sm_fold_next(sm_str *rest, bool joints)
{
    uint32_t counts = 0;
    while (rest->n > 0 && counts == 0) {
        const unsigned char *p = (const unsigned char *)rest->p;
        size_t step = sm_utf8_step(p, rest->n);
        if (step > 0)
            counts = joints && (*p == '_' || *p == '-') ? *p : sm_fold(value_of(p, step));
        step = step == 0 ? 1 : step;
        *rest = (sm_str){rest->p + step, rest->n - step};
    }
    return counts;
}

static bool alike(sm_str a, sm_str b, bool joints)
{
    for (;;) {
        uint32_t x = sm_fold_next(&a, joints), y = sm_fold_next(&b, joints);
        if (x != y)
            return false;
        if (x == 0)
            return true;
    }
}

bool sm_fold_alike(sm_str a, sm_str b)
{
    return alike(a, b, false);
}

bool sm_fold_alike_word(sm_str a, sm_str b)
{
    return alike(a, b, true);
}
