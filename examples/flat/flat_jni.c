/*
 * The functions of semel/flat.h for Flat.java. Texts are arrays of bytes, because the strings of
 * JNI are not quite UTF-8.
 */
#include <jni.h>
#include <poll.h>
#include <semel/flat.h>
#include <stdint.h>
#include <string.h>

#define DOOR(handle) ((semel_flat *)(intptr_t)(handle))

/* An array with this text, which is freed. NULL if there is none. */
static jbyteArray array(JNIEnv *env, char *text, size_t n)
{
    jbyteArray bytes = text == NULL ? NULL : (*env)->NewByteArray(env, (jsize)n);
    if (bytes != NULL)
        (*env)->SetByteArrayRegion(env, bytes, 0, (jsize)n, (const jbyte *)text);
    semel_flat_free(text);
    return bytes;
}

/* 0 if the ledger cannot be opened: problem[0] says why. */
JNIEXPORT jlong JNICALL Java_Ledger_open(JNIEnv *env, jclass self, jbyteArray options,
                                         jobjectArray problem)
{
    (void)self;
    char *why = NULL;
    size_t n = (size_t)(*env)->GetArrayLength(env, options);
    jbyte *text = (*env)->GetByteArrayElements(env, options, NULL);
    semel_flat *f = text == NULL ? NULL : semel_flat_open((char *)text, n, &why);
    if (text != NULL)
        (*env)->ReleaseByteArrayElements(env, options, text, JNI_ABORT);
    if (why != NULL)
        (*env)->SetObjectArrayElement(env, problem, 0, array(env, why, strlen(why)));
    return (jlong)(intptr_t)f;
}

JNIEXPORT jboolean JNICALL Java_Ledger_submit(JNIEnv *env, jclass self, jlong flat, jlong tag,
                                              jbyteArray request)
{
    (void)self;
    size_t n = (size_t)(*env)->GetArrayLength(env, request);
    jbyte *text = (*env)->GetByteArrayElements(env, request, NULL);
    bool done = text != NULL && semel_flat_submit(DOOR(flat), (uint64_t)tag, (char *)text, n);
    if (text != NULL)
        (*env)->ReleaseByteArrayElements(env, request, text, JNI_ABORT);
    return done;
}

/* Waits for the next answer. Its tag is tag[0]. */
JNIEXPORT jbyteArray JNICALL Java_Ledger_take(JNIEnv *env, jclass self, jlong flat, jlongArray tag)
{
    (void)self;
    struct pollfd ready = {.fd = semel_flat_fd(DOOR(flat)), .events = POLLIN};
    uint64_t its;
    size_t n;
    char *answer;
    while ((answer = semel_flat_take(DOOR(flat), &its, &n)) == NULL)
        poll(&ready, 1, -1);
    (*env)->SetLongArrayRegion(env, tag, 0, 1, &(jlong){(jlong)its});
    return array(env, answer, n);
}

JNIEXPORT void JNICALL Java_Ledger_end(JNIEnv *env, jclass self, jlong flat)
{
    (void)env, (void)self;
    semel_flat_close(DOOR(flat));
}
