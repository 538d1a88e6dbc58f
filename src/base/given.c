/* Structures that start with their size: those of older and of newer programs. */
#include "base/given.h"

#include <string.h>

#include "base/limits.h"

static sm_err says_more(const char *what, sm_fault *fault)
{
    return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                        "there is more in %s than this version of Semel (" SEMEL_VERSION_STRING
                        ") knows: the program was compiled against a newer header, or what it "
                        "does not fill in is not zero",
                        what);
}

/* The first byte is zero, and each is as the one before it: memcmp looks at many at once. */
static bool is_zero(const void *bytes, size_t n)
{
    const char *b = bytes;
    return n == 0 || (b[0] == 0 && memcmp(b, b + 1, n - 1) == 0);
}

static size_t size_of(const void *given)
{
    size_t n;
    memcpy(&n, given, sizeof n);
    return n;
}

sm_err sm_given_read(void *ours, size_t size, const void *given, size_t first, const char *what,
                     sm_fault *fault)
{
    size_t n = size_of(given);
    if (n < first || n > size + SM_GIVEN_BEYOND_MAX)
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "the size of %s is not set: it has to be sizeof its type", what);
    if (n > size && !is_zero((const char *)given + size, n - size))
        return says_more(what, fault);
    size_t known = n < size ? n : size;
    memcpy(ours, given, known);
    memset((char *)ours + known, 0, size - known);
    memcpy(ours, &size, sizeof size);
    return SM_OK;
}

void sm_given_fill(void *given, const void *ours, size_t size)
{
    size_t n = size_of(given);
    memcpy((char *)given + sizeof n, (const char *)ours + sizeof n,
           (n < size ? n : size) - sizeof n);
}

sm_err sm_given_spare(const void *spare, size_t bytes, const char *what, sm_fault *fault)
{
    return is_zero(spare, bytes) ? SM_OK : says_more(what, fault);
}
