/* The table of names, and how a name is compared with it. */
#include "core/secret.h"

#include <string.h>
#include <strings.h>

/* How a name has to fit a word. Where it is WHOLE, so is the last part of user[pin] or user.pin;
 * of a header, the last word. */
typedef enum fit { NO, WHOLE, ENDS, INSIDE } fit;

typedef struct word {
    const char *text; /* letters only */
    size_t n;
    fit in[SM_SECRET_PLACES];
} word;

#define WORD(text) text, sizeof text - 1

/* Plurals are rows of their own, because max_tokens is not a secret. */
static const word words[] = {
    /* passwords */
    {WORD("password"), {ENDS, ENDS, INSIDE}},
    {WORD("passwords"), {ENDS, ENDS, NO}},
    {WORD("passwordconfirm"), {ENDS, ENDS, NO}},
    {WORD("passwordconfirmation"), {ENDS, ENDS, NO}},
    {WORD("passwordrepeat"), {ENDS, ENDS, NO}},
    {WORD("passwordhash"), {ENDS, ENDS, NO}},
    {WORD("passwordnew"), {ENDS, ENDS, NO}},
    {WORD("passwordold"), {ENDS, ENDS, NO}},
    {WORD("passwordcurrent"), {ENDS, ENDS, NO}},
    {WORD("passwordagain"), {ENDS, ENDS, NO}},
    {WORD("passwdnew"), {ENDS, ENDS, NO}},
    {WORD("passwdold"), {ENDS, ENDS, NO}},
    {WORD("pwdnew"), {ENDS, ENDS, ENDS}},
    {WORD("pwdold"), {ENDS, ENDS, ENDS}},
    {WORD("passwd"), {ENDS, ENDS, INSIDE}},
    {WORD("passphrase"), {ENDS, ENDS, INSIDE}},
    {WORD("passcode"), {ENDS, ENDS, INSIDE}},
    {WORD("pwd"), {ENDS, ENDS, ENDS}},
    {WORD("pass"), {WHOLE, WHOLE, WHOLE}},
    {WORD("pw"), {WHOLE, WHOLE, NO}},
    {WORD("securityanswer"), {ENDS, ENDS, NO}},
    {WORD("secretanswer"), {ENDS, ENDS, NO}},
    /* tokens and other credentials */
    {WORD("token"), {ENDS, ENDS, INSIDE}},
    {WORD("secret"), {ENDS, ENDS, INSIDE}},
    {WORD("secrets"), {ENDS, ENDS, NO}},
    {WORD("secretvalue"), {ENDS, ENDS, NO}},
    {WORD("credential"), {WHOLE, WHOLE, WHOLE}}, /* X-Amz-Credential in a URL names an account */
    {WORD("credentials"), {ENDS, ENDS, ENDS}},
    {WORD("creds"), {ENDS, ENDS, ENDS}},
    {WORD("authorization"), {WHOLE, WHOLE, INSIDE}},
    {WORD("auth"), {NO, WHOLE, WHOLE}},
    {WORD("bearer"), {WHOLE, WHOLE, WHOLE}},
    {WORD("jwt"), {ENDS, ENDS, ENDS}},
    {WORD("cookie"), {WHOLE, WHOLE, INSIDE}},
    {WORD("cookies"), {WHOLE, WHOLE, NO}},
    {WORD("sessid"), {ENDS, ENDS, ENDS}},
    {WORD("jsessionid"), {ENDS, ENDS, ENDS}},
    {WORD("sessionid"), {NO, WHOLE, NO}}, /* agents have sessions that are no secret */
    {WORD("clientassertion"), {ENDS, ENDS, NO}},
    {WORD("assertion"), {WHOLE, WHOLE, NO}},
    {WORD("samlresponse"), {ENDS, ENDS, NO}},
    {WORD("codeverifier"), {ENDS, ENDS, NO}},
    {WORD("connectionstring"), {ENDS, ENDS, ENDS}},
    {WORD("signature"), {NO, ENDS, NO}},
    {WORD("sig"), {NO, WHOLE, NO}},
    /* keys */
    {WORD("key"), {NO, WHOLE, INSIDE}},
    {WORD("apikey"), {ENDS, ENDS, NO}},
    {WORD("apikeys"), {ENDS, ENDS, NO}},
    {WORD("accesskey"), {ENDS, ENDS, NO}},
    {WORD("privatekey"), {ENDS, ENDS, NO}},
    {WORD("secretkey"), {ENDS, ENDS, NO}},
    {WORD("secretkeybase"), {ENDS, ENDS, NO}}, /* of Rails */
    {WORD("authkey"), {ENDS, ENDS, NO}},
    {WORD("signingkey"), {ENDS, ENDS, NO}},
    {WORD("encryptionkey"), {ENDS, ENDS, NO}},
    {WORD("decryptionkey"), {ENDS, ENDS, NO}},
    {WORD("masterkey"), {ENDS, ENDS, NO}},
    {WORD("sharedkey"), {ENDS, ENDS, NO}},
    {WORD("passkey"), {ENDS, ENDS, NO}},
    {WORD("subscriptionkey"), {NO, ENDS, NO}},
    {WORD("seedphrase"), {ENDS, ENDS, NO}},
    {WORD("recoveryphrase"), {ENDS, ENDS, NO}},
    {WORD("mnemonic"), {WHOLE, WHOLE, NO}},
    /* codes */
    {WORD("otp"), {ENDS, ENDS, NO}},
    {WORD("otpcode"), {ENDS, ENDS, NO}}, /* totp_code */
    {WORD("onetimecode"), {ENDS, ENDS, NO}},
    {WORD("verificationcode"), {ENDS, ENDS, NO}},
    {WORD("facode"), {ENDS, ENDS, NO}}, /* mfa_code, 2fa_code */
    {WORD("smscode"), {ENDS, ENDS, NO}},
    {WORD("authcode"), {ENDS, ENDS, NO}},
    {WORD("authorizationcode"), {ENDS, ENDS, NO}},
    {WORD("accesscode"), {ENDS, ENDS, NO}},
    {WORD("recoverycode"), {ENDS, ENDS, NO}},
    {WORD("recoverycodes"), {ENDS, ENDS, NO}},
    {WORD("backupcode"), {ENDS, ENDS, NO}},
    {WORD("backupcodes"), {ENDS, ENDS, NO}},
    {WORD("pin"), {WHOLE, WHOLE, NO}}, /* a pincode is a part of addresses */
    {WORD("cardpin"), {ENDS, ENDS, NO}},
    /* cards */
    {WORD("cardnumber"), {ENDS, ENDS, NO}},
    {WORD("cardsnumber"), {ENDS, ENDS, NO}},
    {WORD("cardno"), {ENDS, ENDS, NO}},
    {WORD("ccnumber"), {ENDS, ENDS, NO}},
    {WORD("ccnum"), {ENDS, ENDS, NO}},
    {WORD("pan"), {WHOLE, WHOLE, NO}},
    {WORD("cvc"), {ENDS, ENDS, NO}},
    {WORD("cvv"), {ENDS, ENDS, NO}},
    {WORD("cvccode"), {ENDS, ENDS, NO}},
    {WORD("cvvcode"), {ENDS, ENDS, NO}},
    {WORD("cvn"), {WHOLE, WHOLE, NO}},
    {WORD("csc"), {WHOLE, WHOLE, NO}},
    {WORD("cardcode"), {ENDS, ENDS, NO}},
    {WORD("cardsecuritycode"), {ENDS, ENDS, NO}}, /* a security_code alone may be that of a share */
    {WORD("verificationvalue"), {ENDS, ENDS, NO}},
};

/* The end of a name in lowercase, letters alone. */
typedef struct tail {
    char text[32];
    size_t n;
    size_t last; /* letters of the last part */
    bool parted; /* another part has begun */
} tail;

_Static_assert(sizeof "passwordconfirmation" <= sizeof((tail *)0)->text, "the longest word fits");

/* Puts a name before what is there. `joints` separate the parts of a name. */
static void prepend(tail *t, sm_str name, const char *joints)
{
    for (size_t i = name.n; i > 0 && !(t->n == sizeof t->text && t->last > 0); i--) {
        char c = name.p[i - 1], lower = (char)(c | 0x20);
        bool letter = lower >= 'a' && lower <= 'z';
        if (letter && t->n < sizeof t->text)
            t->text[sizeof t->text - ++t->n] = lower;
        t->last += letter && !t->parted;
        t->parted = t->parted || (t->last > 0 && memchr(joints, c, strlen(joints)) != NULL);
    }
    t->parted = t->parted || t->last > 0;
}

static bool ends_with(const tail *t, const char *text, size_t n)
{
    const char *end = t->text + sizeof t->text;
    return t->n >= n && end[-1] == text[n - 1] && memcmp(end - n, text, n) == 0;
}

/* Words are in lowercase. Few letters are the first of one, so most places are passed over. */
static bool has(sm_str name, const char *text, size_t n)
{
    bool is = false;
    for (size_t at = 0; at + n <= name.n && !is; at++)
        is = (name.p[at] | 0x20) == text[0] && strncasecmp(name.p + at, text, n) == 0;
    return is;
}

static bool fits(const word *w, sm_secret_place place, sm_str name, const tail *t)
{
    switch (w->in[place]) {
    case WHOLE: return t->last == w->n && ends_with(t, w->text, w->n);
    case ENDS: return ends_with(t, w->text, w->n);
    case INSIDE: return has(name, w->text, w->n);
    case NO: break;
    }
    return false;
}

static bool is_secret(sm_secret_place place, sm_str name, const tail *t)
{
    bool is = false;
    for (size_t i = 0; i < sizeof words / sizeof *words && !is; i++)
        is = fits(&words[i], place, name, t);
    return is;
}

bool sm_name_secret(sm_str name, sm_secret_place place)
{
    tail t = {.n = 0};
    prepend(&t, name, place == SM_IN_HEADER ? "-_." : "[].");
    return is_secret(place, name, &t);
}

bool sm_way_secret(const sm_str *way, uint32_t n)
{
    tail t = {.n = 0};
    if (n == 0)
        return false;
    for (uint32_t i = n; i > 0 && t.n < sizeof t.text; i--)
        prepend(&t, way[i - 1], "[].");
    return is_secret(SM_IN_BODY, way[n - 1], &t);
}
