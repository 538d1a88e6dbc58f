/*
 * Undoing: from an effect to the call that undoes it (the contract's `compensate`). Pure.
 *
 * The call's key is made of the effect's handle, so an effect is undone once, whoever asks and
 * however often.
 */
#ifndef SM_CORE_UNDO_H
#define SM_CORE_UNDO_H

#include "core/contract.h"
#include "core/handle.h"

/* The key of the call that undoes an effect, "undo:ef_...", and its NUL; returns its length. */
#define SM_UNDO_KEY_TEXT (SM_HANDLE_TEXT + 5)
size_t sm_undo_key(const sm_handle *effect, char out[SM_UNDO_KEY_TEXT]);

/* Whether only an undo may have such a key: it starts with "undo:". */
bool sm_undo_key_reserved(sm_str key);

/* Which effect a caller's key undoes; false if it is not the key of an undo. */
bool sm_undo_key_parse(sm_str key, sm_handle *effect);

/* The arguments of the undo's tool. `args` and `outcome` are the effect's, NULL if they are gone.
 * Nothing is guessed: SEMEL_E_BAD_ARGUMENTS, with a sentence that says what is missing, if a place
 * is not there or is not stored. */
sm_err sm_undo_args(sm_arena *a, const sm_compensate *rule, const sm_json *args,
                    const sm_json *outcome, const sm_json **out, sm_fault *fault);

#endif
