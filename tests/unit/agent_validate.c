/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include <gpusnap/snapshot.h>

#include "tests/support/moe_state.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

static char root[PATH_MAX];

struct served {
	struct moe_state state;
	gpusnap_agent *agent;
	char socket[PATH_MAX];
};

static void serve(struct served *served)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	gpusnap_error err;

	shape.ep_rank = 1;
	shape.ep_size = 2;
	moe_state_make(&served->state, &shape);
	tempdir_join(served->socket, root, "agent");
	ck_ok(gpusnap_agent_start(served->state.registry, served->socket, &served->agent, &err));
	ck_ok(gpusnap_dispatch_serve(served->state.dispatch, served->agent, &err));
}

static void stop(struct served *served)
{
	gpusnap_agent_stop(served->agent);
	moe_state_free(&served->state);
}

static gpusnap_json *call(const struct served *served, gpusnap_json *args)
{
	gpusnap_json *result;
	gpusnap_error err;

	ck_ok(gpusnap_agent_call(served->socket, "validate", args, &result, &err));
	return result;
}

static bool is_true(const gpusnap_json *result, const char *key)
{
	int value = gpusnap_json_boolean(gpusnap_json_get(result, key), -1);

	ck_assert_msg(value >= 0, "no boolean '%s'", key);
	return value;
}

static void check_proved(gpusnap_json *result, bool recorded)
{
	ck_assert(is_true(result, "proved"));
	ck_assert(!is_true(result, "decode_differs"));
	ck_assert(is_true(result, "recorded") == recorded);
	ck_assert_int_eq(gpusnap_json_integer(gpusnap_json_get(result, "layers"), -1), 2);
	ck_assert_int_eq(gpusnap_json_integer(gpusnap_json_get(result, "experts_swept"), -1), 8);
	ck_assert_uint_eq(strlen(gpusnap_json_text(gpusnap_json_get(result, "digest"))), 32);
	ck_assert_uint_eq(gpusnap_json_size(gpusnap_json_get(result, "failures")), 0);
	gpusnap_json_free(result);
}

START_TEST(a_record_is_asked_for_made_and_then_held_against)
{
	struct served served;
	gpusnap_json *result, *record;
	gpusnap_error err;

	serve(&served);
	ck_fails(gpusnap_agent_call(served.socket, "validate", NULL, &result, &err),
		GPUSNAP_E_STATE, "run validate --record first");
	check_proved(call(&served, gpusnap_json_pack("{s:b, s:i, s:i, s:i}", "record", 1, "seed", 9,
					   "tokens", 3, "steps", 2)),
		true);
	ck_assert_ptr_nonnull(gpusnap_registry_baseline(served.state.registry));
	record = gpusnap_record_get(served.state.registry, "probe");
	ck_assert_int_eq(gpusnap_json_integer(gpusnap_json_get(record, "seed"), 0), 9);
	ck_assert_int_eq(gpusnap_json_integer(gpusnap_json_get(record, "tokens"), 0), 3);
	ck_assert_int_eq(gpusnap_json_integer(gpusnap_json_get(record, "steps"), 0), 2);
	gpusnap_json_free(record);
	check_proved(call(&served, NULL), false);
	check_proved(call(&served, gpusnap_json_pack("{s:i}", "seed", 9)), false);
	stop(&served);
}
END_TEST

START_TEST(failures_are_listed_with_all_that_is_known)
{
	struct served served;
	gpusnap_json *result, *failures, *item;
	uint64_t size;
	uint8_t *bytes;

	serve(&served);
	check_proved(call(&served, gpusnap_json_pack("{s:b}", "record", 1)), true);
	bytes = moe_state_bytes(&served.state, 0, GPUSNAP_MOE_MASK, &size);
	memset(bytes, 0, size);
	bytes = moe_state_bytes(&served.state, 1, GPUSNAP_MOE_W2, &size);
	memset(bytes + size / 2, 0, size / 4); /* expert 4 + 2 */
	result = call(&served, NULL);
	ck_assert(!is_true(result, "proved") && is_true(result, "decode_differs"));
	failures = gpusnap_json_get(result, "failures");
	ck_assert_uint_eq(gpusnap_json_size(failures), 2);
	item = gpusnap_json_at(failures, 0);
	ck_assert_str_eq(gpusnap_json_text(gpusnap_json_get(item, "kind")), "structure");
	ck_assert_str_eq(gpusnap_json_text(gpusnap_json_get(item, "buffer")), "layers.0.mask");
	ck_assert_int_eq(gpusnap_json_integer(gpusnap_json_get(item, "layer"), -1), 0);
	ck_assert_int_eq(gpusnap_json_kind_of(gpusnap_json_get(item, "expert")), GPUSNAP_JSON_NULL);
	item = gpusnap_json_at(failures, 1);
	ck_assert_str_eq(gpusnap_json_text(gpusnap_json_get(item, "kind")), "expert");
	ck_assert_str_eq(gpusnap_json_text(gpusnap_json_get(item, "buffer")), "layers.1.w2");
	ck_assert_int_eq(gpusnap_json_integer(gpusnap_json_get(item, "layer"), -1), 1);
	ck_assert_int_eq(gpusnap_json_integer(gpusnap_json_get(item, "expert"), -1), 6);
	ck_assert_int_eq(gpusnap_json_integer(gpusnap_json_get(item, "leaf"), -1), 0);
	ck_assert_ptr_nonnull(gpusnap_json_text(gpusnap_json_get(item, "detail")));
	gpusnap_json_free(result);
	stop(&served);
}
END_TEST

START_TEST(a_file_brings_record_and_leaves)
{
	struct served served;
	gpusnap_save_report report;
	char plain[PATH_MAX], proved[PATH_MAX];
	gpusnap_json *result;
	uint64_t size;
	uint8_t *bytes;
	gpusnap_error err;

	serve(&served);
	tempdir_join(plain, root, "plain.gsnap");
	tempdir_join(proved, root, "proved.gsnap");
	ck_ok(gpusnap_save(served.state.registry, plain, NULL, &report, &err));
	ck_fails(gpusnap_agent_call(served.socket, "validate",
			 gpusnap_json_pack("{s:s}", "file", plain), &result, &err),
		GPUSNAP_E_STATE, "plain.gsnap");
	check_proved(call(&served, gpusnap_json_pack("{s:b}", "record", 1)), true);
	ck_ok(gpusnap_save(served.state.registry, proved, NULL, &report, &err));
	bytes = moe_state_bytes(&served.state, 1, GPUSNAP_MOE_W13, &size);
	bytes[1] ^= 0x20;
	/* A new record of the broken state is proved against itself, not against the file. */
	check_proved(call(&served, gpusnap_json_pack("{s:b}", "record", 1)), true);
	result = call(&served, gpusnap_json_pack("{s:s}", "file", proved));
	ck_assert(!is_true(result, "proved"));
	ck_assert_str_eq(
		gpusnap_json_text(gpusnap_json_get(
			gpusnap_json_at(gpusnap_json_get(result, "failures"), 0), "buffer")),
		"layers.1.w13");
	gpusnap_json_free(result);
	bytes[1] ^= 0x20;
	check_proved(call(&served, gpusnap_json_pack("{s:s}", "file", proved)), false);
	stop(&served);
}
END_TEST

START_TEST(arguments_that_do_not_fit_are_refused)
{
	struct served served;
	gpusnap_json *result;
	gpusnap_error err;
	int32_t *mask;
	uint64_t size;

	serve(&served);
#define REFUSED(args, status, text)                                                                \
	ck_fails(gpusnap_agent_call(served.socket, "validate", (args), &result, &err), status, text)
	REFUSED(gpusnap_json_pack("{s:i}", "recrod", 1), GPUSNAP_E_INVALID, "recrod");
	REFUSED(gpusnap_json_pack("{s:s}", "file", "relative"), GPUSNAP_E_INVALID, "absolute");
	REFUSED(gpusnap_json_pack("{s:i}", "steps", 65537), GPUSNAP_E_INVALID, "65537");
	REFUSED(gpusnap_json_pack("{s:b, s:s}", "record", 1, "file", "/x"), GPUSNAP_E_INVALID,
		"not both");
	check_proved(call(&served, gpusnap_json_pack("{s:b}", "record", 1)), true);
	REFUSED(gpusnap_json_pack("{s:i}", "seed", 2), GPUSNAP_E_MISMATCH, "made with 1");
	mask = moe_state_bytes(&served.state, 0, GPUSNAP_MOE_MASK, &size);
	mask[0] = 1;
	REFUSED(gpusnap_json_pack("{s:b}", "record", 1), GPUSNAP_E_NOT_PROVED, "layers.0.mask");
#undef REFUSED
	stop(&served);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		a_record_is_asked_for_made_and_then_held_against,
		failures_are_listed_with_all_that_is_known,
		a_file_brings_record_and_leaves,
		arguments_that_do_not_fit_are_refused,
	};
	int status;

	tempdir_make(root, NULL);
	status = RUN_SUITE("agent_validate", tests);
	tempdir_remove(root);
	return status;
}
