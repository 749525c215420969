/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include <gpusnap/json.h>

#include "tests/support/suite.h"

static gpusnap_status parse(const char *text, gpusnap_json **out, gpusnap_error *err)
{
	/* An exact copy, so that ASan sees a read past the length. */
	size_t length = strlen(text);
	char *copy = malloc(length ? length : 1);
	gpusnap_status status;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, text, length);
	status = gpusnap_json_parse(copy, length, "request", out, err);
	free(copy);
	return status;
}

static gpusnap_json *parsed(const char *text)
{
	gpusnap_json *value = NULL;
	gpusnap_error err;

	ck_ok(parse(text, &value, &err));
	return value;
}

START_TEST(what_jansson_would_let_through_is_refused)
{
	static const struct {
		const char *text;
		const char *says;
	} rows[] = {
		{"{\"a\":-0}", "request: integer -0 at byte 5"},
		{"[1,-0]", "integer -0 at byte 3"},
		{"-0", "integer -0 at byte 0"},
		{"[-0 ]", "integer -0"},
		{"{\"a\":1,\"a\":2}", "duplicate object key"},
		{"{\"a\":{\"b\":1,\"\\u0062\":2}}", "duplicate object key"},
		{"{} {}", "end of file expected"},
		{"", "request: line 1, column 0"},
		{"{\"a\":\"\\u0000\"}", "\\u0000 is not allowed"},
		{"{\"\\u0000\":1}", "NUL byte in object key"},
		{"{\"a\":9223372036854775808}", "too big integer"},
		{"{\"a\":-9223372036854775809}", "too big negative integer"},
		{"{\"a\":1e999}", "real number overflow"},
		{"{\"a\":NaN}", "invalid token"},
		{"{\"a\":\"\xff\"}", "unable to decode byte 0xff"},
		{"{\"a\":1,}", "string or '}' expected"},
		{"// x\n{}", "invalid token"},
	};
	gpusnap_json *value = NULL;
	gpusnap_error err;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		ck_fails(parse(rows[i].text, &value, &err), GPUSNAP_E_FORMAT, rows[i].says);
		ck_assert_ptr_null(value);
	}
}
END_TEST

START_TEST(minus_zero_is_only_refused_as_an_integer)
{
	static const char *const good[] = {"[-0.0]", "[-0.5]", "[-0e1]", "[1e-0]", "[1E-01]",
		"[\"-0\"]", "{\"-0\":1}", "[\"\\\"-0\"]", "[\"\\\\\",-1]", "[-10]"};

	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
		gpusnap_json_free(parsed(good[i]));
}
END_TEST

static void nest(
	char *text, unsigned depth, const char *open, const char *middle, const char *close)
{
	text[0] = '\0';
	for (unsigned i = 0; i < depth; i++)
		text += sprintf(text, "%s", open);
	text += sprintf(text, "%s", middle);
	for (unsigned i = 0; i < depth; i++)
		text += sprintf(text, "%s", close);
}

START_TEST(nesting_is_refused_beyond_128_levels)
{
	static char text[4096];
	gpusnap_json *value = NULL;
	gpusnap_error err;

	nest(text, 128, "[", "", "]");
	gpusnap_json_free(parsed(text));
	nest(text, 129, "[", "", "]");
	ck_fails(parse(text, &value, &err), GPUSNAP_E_FORMAT, "deeper than 128 levels at byte 128");
	ck_assert_uint_eq(err.offset, 128);
	nest(text, 128, "{\"a\":", "1", "}");
	gpusnap_json_free(parsed(text));
	nest(text, 128, "{\"a\":", "[]", "}");
	ck_fails(parse(text, &value, &err), GPUSNAP_E_FORMAT, "deeper than 128 levels");
	/* Brackets in strings, and many side by side, do not count. */
	nest(text, 200, "\\\"[{", "", "\\\\");
	memmove(text + 2, text, strlen(text) + 1);
	memcpy(text, "[\"", 2);
	strcat(text, "\"]");
	gpusnap_json_free(parsed(text));
	nest(text, 1, "[[]", "", "]");
	for (int i = 0; i < 200; i++)
		memcpy(text + 3 + 3 * i, ",[]", 3);
	strcpy(text + 603, "]");
	value = parsed(text);
	ck_assert_uint_eq(gpusnap_json_size(value), 201);
	gpusnap_json_free(value);
}
END_TEST

START_TEST(any_value_is_a_document)
{
	gpusnap_json *value = parsed(" 9223372036854775807 ");

	ck_assert_int_eq(gpusnap_json_integer(value, 0), INT64_MAX);
	gpusnap_json_free(value);
	value = parsed("-9223372036854775808");
	ck_assert_int_eq(gpusnap_json_integer(value, 0), INT64_MIN);
	gpusnap_json_free(value);
	value = parsed("null");
	ck_assert_int_eq(gpusnap_json_kind_of(value), GPUSNAP_JSON_NULL);
	gpusnap_json_free(value);
}
END_TEST

START_TEST(unpack_names_the_key_that_is_missing_or_wrong)
{
	gpusnap_json *value = parsed("{\"a\":1,\"b\":\"x\",\"c\":{\"d\":[1,\"q\"],\"e\":true}}");
	gpusnap_error err;
	const char *text;
	size_t length;
	int a, b;

	ck_ok(gpusnap_json_unpack(
		value, "plan", &err, "{s:i,s:s,s:{s:b}}", "a", &a, "b", &text, "c", "e", &b));
	ck_assert_int_eq(a, 1);
	ck_assert_str_eq(text, "x");
	ck_assert_int_eq(b, 1);
	ck_fails(gpusnap_json_unpack(value, "plan", &err, "{s:i,s:i}", "a", &a, "b", &b),
		GPUSNAP_E_FORMAT, "plan: 'b': Expected integer, got string");
	ck_fails(gpusnap_json_unpack(value, "plan", &err, "{s:i,s:i}", "a", &a, "zz", &b),
		GPUSNAP_E_FORMAT, "plan: Object item not found: zz");
	ck_fails(gpusnap_json_unpack(value, "plan", &err, "{s:i,s:s%,s:{s:[ii]}}", "a", &a, "b",
			 &text, &length, "c", "d", &a, &b),
		GPUSNAP_E_FORMAT, "plan: 'd': Expected integer, got string");
	ck_fails(gpusnap_json_unpack(value, "plan", &err, "{s:{s:[ii!],s:b},s:i}", "c", "d", &a, &b,
			 "e", &b, "a", &a),
		GPUSNAP_E_FORMAT, "'d': Expected integer");
	ck_fails(gpusnap_json_unpack(value, "plan", &err, "{s:{s:n}}", "c", "e"), GPUSNAP_E_FORMAT,
		"'e': Expected null, got true");
	ck_fails(gpusnap_json_unpack(value, "plan", &err, "[i]", &a), GPUSNAP_E_FORMAT,
		"plan: Expected array, got object");
	ck_fails(gpusnap_json_unpack(NULL, "plan", &err, "{s:i}", "a", &a), GPUSNAP_E_FORMAT,
		"plan: ");
	ck_ok(gpusnap_json_unpack(value, "plan", &err, "{s?i,s?i}", "nope", &b, "a", &a));
	ck_fails(gpusnap_json_unpack(value, "plan", &err, "{s?i,s?b}", "nope", &b, "a", &a),
		GPUSNAP_E_FORMAT, "'a': Expected true or false, got integer");
	gpusnap_json_free(value);
}
END_TEST

START_TEST(dump_leads_back_and_is_stable)
{
	static const char text[] =
		"{\"b\":[1,-2,0.5,true,false,null],\"a\":\"\\u20ac\\n\\\"\",\"c\":{}}";
	gpusnap_json *value = parsed(text);
	char *dump = gpusnap_json_dump(value);
	char *pretty = gpusnap_json_dump_pretty(value);
	gpusnap_json *again;
	char *redump;

	ck_assert_str_eq(
		dump, "{\"b\":[1,-2,0.5,true,false,null],\"a\":\"\xe2\x82\xac\\n\\\"\",\"c\":{}}");
	ck_assert_ptr_null(strchr(dump, '\n'));
	ck_assert_ptr_nonnull(strstr(pretty, "\n  \"b\": [\n    1,\n"));
	again = parsed(pretty);
	redump = gpusnap_json_dump(again);
	ck_assert_str_eq(redump, dump);
	gpusnap_text_free(dump);
	gpusnap_text_free(pretty);
	gpusnap_text_free(redump);
	gpusnap_json_free(value);
	gpusnap_json_free(again);
	ck_assert_ptr_null(gpusnap_json_dump(NULL));
}
END_TEST

START_TEST(pack_consumes_its_values_even_when_it_fails)
{
	gpusnap_json *item = gpusnap_json_pack("i", 7);
	gpusnap_json *value;
	char *dump;

	value = gpusnap_json_pack("{s:s,s:[o],s:I,s:f}", "a", "x", "b", gpusnap_json_ref(item), "c",
		(long long)1 << 40, "d", 2.5);
	dump = gpusnap_json_dump(value);
	ck_assert_str_eq(dump, "{\"a\":\"x\",\"b\":[7],\"c\":1099511627776,\"d\":2.5}");
	gpusnap_text_free(dump);
	gpusnap_json_free(value);
	/* A reference that was not consumed shows as a leak under ASan. */
	ck_assert_ptr_null(gpusnap_json_pack("{s:o,s:o}", "a", NULL, "b", gpusnap_json_ref(item)));
	ck_assert_ptr_null(
		gpusnap_json_pack("{s:s,s:o}", "a", "\xff", "b", gpusnap_json_ref(item)));
	ck_assert_int_eq(gpusnap_json_append(NULL, gpusnap_json_ref(item)), GPUSNAP_E_NOMEM);
	ck_assert_int_eq(gpusnap_json_set(NULL, "k", gpusnap_json_ref(item)), GPUSNAP_E_NOMEM);
	gpusnap_json_free(item);
}
END_TEST

START_TEST(access_gives_the_fallback_for_other_types)
{
	gpusnap_json *value =
		parsed("{\"i\":3,\"r\":2.5,\"s\":\"x\",\"b\":false,\"a\":[1,2],\"n\":null}");

	ck_assert_int_eq(gpusnap_json_integer(gpusnap_json_get(value, "i"), -1), 3);
	ck_assert_int_eq(gpusnap_json_integer(gpusnap_json_get(value, "r"), -1), -1);
	ck_assert_int_eq(gpusnap_json_integer(gpusnap_json_get(value, "gone"), -1), -1);
	ck_assert_double_eq(gpusnap_json_real(gpusnap_json_get(value, "r"), -1), 2.5);
	ck_assert_double_eq(gpusnap_json_real(gpusnap_json_get(value, "i"), -1), 3);
	ck_assert_double_eq(gpusnap_json_real(gpusnap_json_get(value, "s"), -1), -1);
	ck_assert_int_eq(gpusnap_json_boolean(gpusnap_json_get(value, "b"), 1), 0);
	ck_assert_int_eq(gpusnap_json_boolean(gpusnap_json_get(value, "n"), 1), 1);
	ck_assert_ptr_null(gpusnap_json_text(gpusnap_json_get(value, "i")));
	ck_assert_uint_eq(gpusnap_json_size(gpusnap_json_get(value, "a")), 2);
	ck_assert_uint_eq(gpusnap_json_size(value), 6);
	ck_assert_uint_eq(gpusnap_json_size(NULL), 0);
	ck_assert_ptr_null(gpusnap_json_at(gpusnap_json_get(value, "a"), 2));
	ck_assert_int_eq(gpusnap_json_kind_of(gpusnap_json_get(value, "b")), GPUSNAP_JSON_BOOLEAN);
	ck_assert_int_eq(gpusnap_json_kind_of(NULL), GPUSNAP_JSON_NULL);
	gpusnap_json_free(value);
	gpusnap_json_free(NULL);
}
END_TEST

START_TEST(members_come_in_the_order_of_the_text)
{
	gpusnap_json *value = parsed("{\"z\":0,\"a\":1,\"m\":2,\"b\":3}");
	char keys[8] = "";
	int64_t next = 0;

	for (void *at = gpusnap_json_first(value); at; at = gpusnap_json_next(value, at)) {
		ck_assert_str_eq(gpusnap_json_key_at(value, (size_t)next), gpusnap_json_key(at));
		ck_assert_int_eq(gpusnap_json_integer(gpusnap_json_value(at), -1), next++);
		strcat(keys, gpusnap_json_key(at));
	}
	ck_assert_str_eq(keys, "zamb");
	ck_assert_ptr_null(gpusnap_json_key_at(value, 4));
	gpusnap_json_remove(value, "a");
	gpusnap_json_remove(value, "a");
	ck_assert_str_eq(gpusnap_json_key_at(value, 1), "m");
	gpusnap_json_free(value);
	ck_assert_ptr_null(gpusnap_json_first(NULL));
	ck_assert_ptr_null(gpusnap_json_key_at(NULL, 0));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		what_jansson_would_let_through_is_refused,
		minus_zero_is_only_refused_as_an_integer,
		nesting_is_refused_beyond_128_levels,
		any_value_is_a_document,
		unpack_names_the_key_that_is_missing_or_wrong,
		dump_leads_back_and_is_stable,
		pack_consumes_its_values_even_when_it_fails,
		access_gives_the_fallback_for_other_types,
		members_come_in_the_order_of_the_text,
	};

	return RUN_SUITE("json_values", tests);
}
