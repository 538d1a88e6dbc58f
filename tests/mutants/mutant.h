/* Included before everything else in a build with planted mistakes: which of them is switched on,
 * and which were met. */
#ifndef SM_MUTANT_H
#define SM_MUTANT_H

#include <stdbool.h>

extern int sm_mutant;                  /* its number; 0: none */
extern volatile unsigned char *sm_met; /* one byte for each; NULL: nobody wants to know */

static inline bool sm_mutated(int number)
{
    if (sm_met != (void *)0)
        sm_met[number] = 1;
    return number == sm_mutant;
}

#endif
