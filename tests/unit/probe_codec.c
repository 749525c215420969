/* SPDX-License-Identifier: Apache-2.0 */
/* The probe record: round trip, strict reading, and a digest that covers every field. */
#include <string.h>

#include <gpusnap/probe.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "tests/support/suite.h"

static gpusnap_error err;

static gpusnap_digest numbered(unsigned n)
{
	return gpusnap_digest_of(&n, sizeof n);
}

static gpusnap_probe *make_probe(void)
{
	gpusnap_probe *probe = gpusnap_probe_new(2);

	probe->seed = INT64_MAX;
	probe->tokens = 8;
	probe->steps = 4;
	for (uint32_t i = 0; i < 2; i++) {
		gpusnap_probe_layer *layer = &probe->layers[i];

		layer->control[GPUSNAP_MOE_ROUTER] = numbered(100 * i + 1);
		layer->control[GPUSNAP_MOE_MASK] = numbered(100 * i + 2);
		layer->expert_count = 3;
		layer->experts = gsn_alloc(3, sizeof *layer->experts);
		for (uint32_t e = 0; e < 3; e++)
			layer->experts[e] = numbered(100 * i + 10 + e);
		layer->output = numbered(100 * i + 3);
		layer->local_assignments = 60 + i;
		layer->remote_assignments = 4 - i;
	}
	probe->digest = gpusnap_probe_digest(probe);
	return probe;
}

/* Encode, change one member of the object at `path` ("" is the whole, "layer" the first one). */
static gpusnap_json *with(const char *path, const char *key, gpusnap_json *value)
{
	gpusnap_probe *probe = make_probe();
	gpusnap_json *json = gpusnap_probe_encode(probe), *object = json;

	gpusnap_probe_free(probe);
	if (strcmp(path, "layer") == 0)
		object = gpusnap_json_at(gpusnap_json_get(json, "layers"), 0);
	ck_assert_int_eq(gpusnap_json_set(object, key, value), GPUSNAP_OK);
	return json;
}

static void refused(gpusnap_json *json, gpusnap_status expected, const char *message)
{
	gpusnap_probe *probe = NULL;

	ck_fails(gpusnap_probe_decode(json, &probe, &err), expected, message);
	ck_assert(probe == NULL);
	ck_assert_ptr_eq(strstr(err.message, "probe record: "), err.message);
	gpusnap_json_free(json);
}

START_TEST(decode_returns_what_was_encoded)
{
	gpusnap_probe *probe = make_probe(), *back;
	gpusnap_json *json = gpusnap_probe_encode(probe);

	ck_ok(gpusnap_probe_decode(json, &back, &err));
	ck_assert_uint_eq(back->version, GPUSNAP_PROBE_VERSION);
	ck_assert_uint_eq(back->seed, probe->seed);
	ck_assert_uint_eq(back->tokens, 8);
	ck_assert_uint_eq(back->steps, 4);
	ck_assert_uint_eq(back->layer_count, 2);
	ck_assert(gpusnap_digest_equal(back->digest, probe->digest));
	for (uint32_t i = 0; i < 2; i++) {
		ck_assert_mem_eq(back->layers[i].control, probe->layers[i].control,
			sizeof probe->layers[i].control);
		ck_assert_uint_eq(back->layers[i].expert_count, 3);
		ck_assert_mem_eq(back->layers[i].experts, probe->layers[i].experts, 48);
		ck_assert(gpusnap_digest_equal(back->layers[i].output, probe->layers[i].output));
		ck_assert_uint_eq(back->layers[i].local_assignments, 60 + i);
		ck_assert_uint_eq(back->layers[i].remote_assignments, 4 - i);
	}
	gpusnap_json_free(json);
	gpusnap_probe_free(probe);
	gpusnap_probe_free(back);
}
END_TEST

/* The digest by the words of gsnap.md, byte by byte. */
START_TEST(digest_is_the_documented_chain)
{
	gpusnap_probe *probe = make_probe();
	uint8_t bytes[192] = {0};
	gpusnap_digest d, experts;

	gsn_put_le32(bytes, 1);
	gsn_put_le64(bytes + 4, INT64_MAX);
	gsn_put_le32(bytes + 12, 8);
	gsn_put_le32(bytes + 16, 4);
	gsn_put_le32(bytes + 20, 2);
	d = gpusnap_digest_of(bytes, 24);
	for (uint32_t i = 0; i < 2; i++) {
		memcpy(bytes, d.bytes, 16);
		memcpy(bytes + 16, probe->layers[i].control, 112);
		gsn_put_le32(bytes + 128, 3);
		experts = gpusnap_digest_of(probe->layers[i].experts, 48);
		memcpy(bytes + 132, experts.bytes, 16);
		memcpy(bytes + 148, probe->layers[i].output.bytes, 16);
		gsn_put_le64(bytes + 164, 60 + i);
		gsn_put_le64(bytes + 172, 4 - i);
		d = gpusnap_digest_of(bytes, 180);
	}
	ck_assert_mem_eq(gpusnap_probe_digest(probe).bytes, d.bytes, 16);
	gpusnap_probe_free(probe);
}
END_TEST

START_TEST(a_change_of_any_field_is_found_by_the_digest)
{
	static const char other[] = "00112233445566778899aabbccddeeff";

	refused(with("", "seed", gpusnap_json_pack("i", 1)), GPUSNAP_E_CORRUPT, "digest is");
	refused(with("", "tokens", gpusnap_json_pack("i", 1)), GPUSNAP_E_CORRUPT, "digest is");
	refused(with("", "steps", gpusnap_json_pack("i", 1)), GPUSNAP_E_CORRUPT, "digest is");
	refused(with("", "digest", gpusnap_json_pack("s", other)), GPUSNAP_E_CORRUPT, other);
	refused(with("layer", "output", gpusnap_json_pack("s", other)), GPUSNAP_E_CORRUPT,
		"digest is");
	refused(with("layer", "control", gpusnap_json_pack("{}")), GPUSNAP_E_CORRUPT, "digest is");
	refused(with("layer", "control", gpusnap_json_pack("{s:s}", "norm", other)),
		GPUSNAP_E_CORRUPT, "digest is");
	refused(with("layer", "experts", gpusnap_json_pack("[s]", other)), GPUSNAP_E_CORRUPT,
		"digest is");
	refused(with("layer", "local_assignments", gpusnap_json_pack("i", 0)), GPUSNAP_E_CORRUPT,
		"digest is");
	refused(with("layer", "remote_assignments", gpusnap_json_pack("i", 0)), GPUSNAP_E_CORRUPT,
		"digest is");
	refused(with("", "layers",
			gpusnap_json_pack("[{s:{}, s:[s], s:s, s:i, s:i}]", "control", "experts",
				other, "output", other, "local_assignments", 1,
				"remote_assignments", 0)),
		GPUSNAP_E_CORRUPT, "digest is");
}
END_TEST

START_TEST(malformed_records_are_refused)
{
	refused(with("", "version", gpusnap_json_pack("i", 2)), GPUSNAP_E_UNSUPPORTED,
		"version 2, this build compares 1");
	refused(with("", "version", gpusnap_json_pack("i", 0)), GPUSNAP_E_FORMAT, "'version' is 0");
	refused(with("", "seed", gpusnap_json_pack("i", -1)), GPUSNAP_E_FORMAT, "'seed' is -1");
	refused(with("", "tokens", gpusnap_json_pack("i", 0)), GPUSNAP_E_FORMAT, "'tokens' is 0");
	refused(with("", "steps", gpusnap_json_pack("i", 65537)), GPUSNAP_E_FORMAT,
		"'steps' is 65537, expected 1 to 65536");
	refused(with("", "layers", gpusnap_json_pack("[]")), GPUSNAP_E_FORMAT,
		"'layers' has 0 items");
	refused(with("", "layers", gpusnap_json_pack("[n]")), GPUSNAP_E_FORMAT,
		"layer at position 0: 'control' is missing");
	refused(with("", "digest", gpusnap_json_pack("n")), GPUSNAP_E_FORMAT, "'digest' is null");
	refused(with("layer", "experts", gpusnap_json_pack("[]")), GPUSNAP_E_FORMAT,
		"'experts' has 0 items");
	refused(with("layer", "experts", gpusnap_json_pack("[i]", 5)), GPUSNAP_E_FORMAT,
		"local expert 0");
	refused(with("layer", "control", gpusnap_json_pack("{s:s}", "gate", "x")),
		GPUSNAP_E_UNSUPPORTED, "slot 'gate'");
	refused(with("layer", "control", gpusnap_json_pack("{s:s}", "norm", "xyz")),
		GPUSNAP_E_FORMAT, "'norm': digest 'xyz'");
	refused(with("layer", "local_assignments", gpusnap_json_pack("f", 1.0)), GPUSNAP_E_FORMAT,
		"a real number");
}
END_TEST

START_TEST(numbers_beyond_json_are_not_written)
{
	gpusnap_probe *probe = make_probe();

	probe->seed = UINT64_C(1) << 63;
	ck_assert_ptr_null(gpusnap_probe_encode(probe));
	probe->seed = 0;
	probe->layers[1].remote_assignments = UINT64_MAX;
	ck_assert_ptr_null(gpusnap_probe_encode(probe));
	gpusnap_probe_free(probe);
	gpusnap_probe_free(NULL);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		decode_returns_what_was_encoded,
		digest_is_the_documented_chain,
		a_change_of_any_field_is_found_by_the_digest,
		malformed_records_are_refused,
		numbers_beyond_json_are_not_written,
	};

	return RUN_SUITE("probe_record", tests);
}
