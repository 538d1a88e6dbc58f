/* Names of secrets: in bodies, URLs and headers. */
#include "core/secret.h"

#include "unit.h"

static void expect_all(const char *const *names, size_t n, sm_secret_place place, bool secret)
{
    for (size_t i = 0; i < n; i++)
        expect(sm_name_secret(sm_str_from(names[i]), place) == secret, "%s in place %d", names[i],
               place);
}

static void credentials_in_a_body_are_known_in_every_spelling(void **state)
{
    (void)state;
    static const char *const names[] = {
        "password",
        "PASSWORD",
        "new-password",
        "pass\xC3\xA4word",
        "user[password]",
        "user[passwd][]",
        "db.pwd",
        "passwordConfirm",
        "passwords",
        "passphrase",
        "passcode",
        "password_confirmation",
        "passwordNew",
        "password_old",
        "password_again",
        "passwordCurrent",
        "passwd_new",
        "pwd_new",
        "pwd_old",
        "secret_key_base",
        "totp_code",
        "otpCode",
        "pass",
        "user[pass]",
        "pw",
        "token",
        "accessToken",
        "id_token",
        "refresh_token",
        "token_2",
        "client_secret",
        "secrets",
        "credential",
        "aws_credentials",
        "authorization",
        "headers[cookie]",
        "userJwt",
        "client_assertion",
        "SAMLResponse",
        "code_verifier",
        "PHPSESSID",
        "connection_string",
        "api_key",
        "X-API-Keys",
        "AccessKey",
        "private_key",
        "auth_key",
        "signing_key",
        "encryption_key",
        "pre_shared_key",
        "seed_phrase",
        "mnemonic",
        "otp",
        "totp",
        "2fa_code",
        "mfaCode",
        "verification_code",
        "recovery_codes",
        "pin",
        "user.pin",
        "card_pin",
        "user[pin][0]",
        "card[number]",
        "cardNumber",
        "card_number",
        "credit_card_number",
        "card[cvc]",
        "cvv2",
        "card[security_code]",
        "pan",
    };
    expect_all(names, COUNT(names), SM_IN_BODY, true);
    expect_all(names, COUNT(names), SM_IN_URL, true);
}

static void what_a_person_decides_by_is_not_a_secret(void **state)
{
    (void)state;
    static const char *const names[] = {
        "",
        "[]",
        "number",
        "account_number",
        "iban",
        "amount",
        "max_tokens",
        "tokens",
        "tokenize",
        "author",
        "authority",
        "public_key",
        "sort_key",
        "ssh_key",
        "idempotency_key",
        "code",
        "promo_code",
        "security_code",
        "pincode",
        "pins",
        "spin",
        "bypass",
        "compass",
        "passenger",
        "password_policy",
        "checkout_id",
        "secret_name",
        "credential_id",
        "cookie_banner",
        "card",
        "card[brand]",
        "card[exp]",
        "japan",
        "pre_authorization",
        "pin[label]",
        "boarding_pass",
        "assertions",
    };
    expect_all(names, COUNT(names), SM_IN_BODY, false);
    expect_all(names, COUNT(names), SM_IN_URL, false);
    static const char *const in_urls[] = {"key", "auth", "sig", "x_signature", "session_id"};
    expect_all(in_urls, COUNT(in_urls), SM_IN_BODY, false);
    expect_all(in_urls, COUNT(in_urls), SM_IN_URL, true);
}

static void credentials_in_headers_are_known(void **state)
{
    (void)state;
    static const char *const names[] = {
        "Authorization",
        "Proxy-Authorization",
        "Cookie",
        "Set-Cookie",
        "X-Api-Key",
        "PRIVATE-TOKEN",
        "X-Vault-Token",
        "X-Csrf-Token",
        "X-Credential",
        "X-Auth",
        "X-Foo-Auth",
        "X-Storage-Pass",
        "X-User-Pwd",
        "X-Jwt",
        "X_User_Credentials",
        "Ocp-Apim-Subscription-Key",
        "X-Passwd-Old",
        "JSESSIONID",
    };
    expect_all(names, COUNT(names), SM_IN_HEADER, true);
    /* Those that are new for each try would make each try another action. */
    static const char *const others[] = {
        "Accept",          "Content-Type",  "X-Author",     "X-Auth-User",
        "X-Bypass",        "Authenticator", "X-GitHub-OTP", "Signature",
        "X-Jwt-Assertion", "DPoP",          "X-Session-Id",
    };
    expect_all(others, COUNT(others), SM_IN_HEADER, false);
}

static void a_name_counts_with_those_around_it(void **state)
{
    (void)state;
    static const sm_str number[] = {{"body", 4}, {"card", 4}, {"0", 1}, {"number", 6}};
    static const sm_str pin[] = {{"spin", 4}, {"pin", 3}};
    assert_true(sm_way_secret(number, 4));
    assert_false(sm_way_secret(number, 2));
    assert_false(sm_way_secret(number + 2, 2));
    assert_false(sm_way_secret(number, 0));
    assert_true(sm_way_secret(pin, 2));
    assert_false(sm_way_secret(pin, 1));
}

static void a_long_name_is_compared_by_its_end(void **state)
{
    (void)state;
    char name[200];
    memset(name, 'a', sizeof name);
    assert_false(sm_name_secret((sm_str){name, sizeof name}, SM_IN_BODY));
    memcpy(name + sizeof name - 5, "token", 5);
    assert_true(sm_name_secret((sm_str){name, sizeof name}, SM_IN_BODY));
    memcpy(name + sizeof name - 4, "_pin", 4);
    assert_false(sm_name_secret((sm_str){name, sizeof name}, SM_IN_BODY));
    name[sizeof name - 4] = '.';
    assert_true(sm_name_secret((sm_str){name, sizeof name}, SM_IN_BODY));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(credentials_in_a_body_are_known_in_every_spelling),
        cmocka_unit_test(what_a_person_decides_by_is_not_a_secret),
        cmocka_unit_test(credentials_in_headers_are_known),
        cmocka_unit_test(a_name_counts_with_those_around_it),
        cmocka_unit_test(a_long_name_is_compared_by_its_end),
    };
    return cmocka_run_group_tests_name("secret", tests, NULL, NULL);
}
