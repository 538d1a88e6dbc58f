/*
 * Structures that a program makes and the library reads or fills in.
 *
 * They start with their size, which tells the version of the header that the program was compiled
 * against. The rule is in the opening comment of semel.h; this is the one place that applies it.
 */
#ifndef SM_BASE_GIVEN_H
#define SM_BASE_GIVEN_H

#include "base/error.h"

/* The least size of a structure: that of its first version, which ended with this field. Stays as
 * it is when the structure grows. New fields come after the structure as it was, not into its
 * padding: older programs leave there what they like. */
#define SM_FIRST_SIZE(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

/* Copies what was given into `ours`, of `size` bytes, which has the size of this version then. The
 * text says what it is: "the call". SEMEL_E_BAD_ARGUMENTS if the size is not set, or if it says
 * more than we know. */
sm_err sm_given_read(void *ours, size_t size, const void *given, size_t first, const char *what,
                     sm_fault *fault);

/* Copies ours into what was given and has been read, as far as it goes. Its size stays. */
void sm_given_fill(void *given, const void *ours, size_t size);

/* SEMEL_E_BAD_ARGUMENTS if spare words, or bits that have no meaning yet, are not zero. */
sm_err sm_given_spare(const void *spare, size_t bytes, const char *what, sm_fault *fault);

#endif
