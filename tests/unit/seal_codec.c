/* SPDX-License-Identifier: Apache-2.0 */
/* The seal: layout, and that nothing damaged, foreign, newer or unfinished passes for one. */
#include <string.h>

#include <gpusnap/seal.h>

#include "formats/base/bytes.h"
#include "tests/support/suite.h"

enum { FILE_BYTES = 5 * 4096, OWN_DIGEST = GPUSNAP_SEAL_BYTES - 16 };

static uint8_t bytes[GPUSNAP_SEAL_BYTES];
static gpusnap_error err;

static gpusnap_seal make_seal(void)
{
	gpusnap_seal seal = {
		.version = GPUSNAP_FORMAT_VERSION,
		.header = gpusnap_digest_of("header", 6),
		.leaves = gpusnap_digest_of("leaves", 6),
		.file_bytes = FILE_BYTES,
		.header_bytes = 4096,
		.leaf_count = 2,
	};

	for (int i = 0; i < 16; i++)
		seal.uuid[i] = (uint8_t)(i * 17);
	return seal;
}

static void encode(gpusnap_seal seal)
{
	gpusnap_seal_encode(&seal, bytes);
}

/* Make the seal's own digest right again, so that the next check has to find the change. */
static void sign(void)
{
	gpusnap_digest own = gpusnap_digest_of(bytes, OWN_DIGEST);

	memcpy(bytes + OWN_DIGEST, own.bytes, sizeof own.bytes);
}

static gpusnap_status decode(uint64_t file_bytes)
{
	gpusnap_seal seal;

	return gpusnap_seal_decode(bytes, file_bytes, &seal, &err);
}

START_TEST(fields_stand_where_the_specification_says)
{
	static const uint8_t magic[8] = {0x89, 'G', 'S', 'N', 'P', 0x0d, 0x0a, 0x1a};
	gpusnap_seal seal = make_seal();

	seal.optional_features = UINT64_C(0x1122334455667788);
	gpusnap_seal_encode(&seal, bytes);
	ck_assert_mem_eq(bytes, magic, 8);
	ck_assert_uint_eq(gsn_le32(bytes + 8), 1);
	ck_assert_uint_eq(gsn_le32(bytes + 12), 4096);
	ck_assert_uint_eq(gsn_le64(bytes + 16), 0);
	ck_assert_uint_eq(bytes[24], 0x88);
	ck_assert_uint_eq(bytes[31], 0x11);
	ck_assert_mem_eq(bytes + 32, seal.uuid, 16);
	ck_assert_mem_eq(bytes + 48, seal.header.bytes, 16);
	ck_assert_mem_eq(bytes + 64, seal.leaves.bytes, 16);
	ck_assert_mem_eq(bytes + 80, seal.root.bytes, 16);
	ck_assert(gpusnap_digest_is_zero(seal.parent_root));
	ck_assert_uint_eq(gsn_le64(bytes + 112), FILE_BYTES);
	ck_assert_uint_eq(gsn_le64(bytes + 120), 4096);
	ck_assert_uint_eq(gsn_le64(bytes + 128), 2);
	ck_assert_uint_eq(gsn_le32(bytes + 136), 16);
	for (int i = 140; i < OWN_DIGEST; i++)
		ck_assert_uint_eq(bytes[i], 0);
	ck_assert_mem_eq(bytes + 4080, gpusnap_digest_of(bytes, 4080).bytes, 16);
}
END_TEST

START_TEST(decode_returns_what_was_encoded)
{
	gpusnap_seal seal = make_seal(), back;

	seal.optional_features = 5; /* unknown optional features are no reason to refuse */
	gpusnap_seal_encode(&seal, bytes);
	ck_ok(gpusnap_seal_decode(bytes, FILE_BYTES, &back, &err));
	ck_assert_uint_eq(back.version, 1);
	ck_assert_uint_eq(back.optional_features, 5);
	ck_assert_mem_eq(back.uuid, seal.uuid, 16);
	ck_assert(gpusnap_digest_equal(back.header, seal.header));
	ck_assert(gpusnap_digest_equal(back.leaves, seal.leaves));
	ck_assert(gpusnap_digest_equal(back.root, seal.root));
	ck_assert_uint_eq(back.file_bytes, FILE_BYTES);
	ck_assert_uint_eq(back.header_bytes, 4096);
	ck_assert_uint_eq(back.leaf_count, 2);
}
END_TEST

START_TEST(what_is_no_snapshot_is_said_to_be_none)
{
	memset(bytes, 'x', sizeof bytes);
	ck_fails(decode(FILE_BYTES), GPUSNAP_E_FORMAT, "not a snapshot");
	ck_fails(decode(4095), GPUSNAP_E_FORMAT, "not a snapshot: 4095 bytes");
	encode(make_seal());
	bytes[5] = '\n'; /* a text-mode copy */
	ck_fails(decode(FILE_BYTES), GPUSNAP_E_FORMAT, "not a snapshot");
}
END_TEST

START_TEST(unfinished_and_cut_files_are_said_to_be_incomplete)
{
	uint8_t whole[GPUSNAP_SEAL_BYTES];

	memset(bytes, 0, sizeof bytes);
	ck_fails(decode(FILE_BYTES), GPUSNAP_E_FORMAT, "incomplete snapshot");

	encode(make_seal());
	memcpy(whole, bytes, sizeof whole);
	memset(bytes, 7, 100); /* the end of the leaf table */
	memcpy(bytes + 100, whole, sizeof whole - 100);
	ck_fails(decode(FILE_BYTES - 100), GPUSNAP_E_FORMAT,
		"incomplete snapshot: its seal begins 3996 bytes before the end");
	ck_assert_uint_eq(err.offset, FILE_BYTES - 4096);

	memcpy(bytes, whole, sizeof whole);
	ck_fails(decode(FILE_BYTES - 4096), GPUSNAP_E_FORMAT,
		"incomplete snapshot: the file is 16384 bytes, its seal says 20480");
	ck_fails(decode(FILE_BYTES + 4096), GPUSNAP_E_FORMAT, "overlong");
}
END_TEST

START_TEST(damage_is_found_before_anything_is_believed)
{
	encode(make_seal());
	bytes[8] = 2; /* looks like a newer version, is a flipped byte */
	ck_fails(decode(FILE_BYTES), GPUSNAP_E_CORRUPT, "the seal is damaged");
	ck_assert_uint_eq(err.offset, FILE_BYTES - 4096);
}
END_TEST

START_TEST(newer_versions_and_required_features_are_refused)
{
	gpusnap_seal seal = make_seal();

	seal.version = 2;
	encode(seal);
	ck_fails(decode(FILE_BYTES), GPUSNAP_E_UNSUPPORTED, "version 2, this build reads 1");
	seal.version = 0;
	encode(seal);
	ck_fails(decode(FILE_BYTES), GPUSNAP_E_FORMAT, "version 0");
	seal = make_seal();
	seal.required_features = UINT64_C(1) << 63;
	encode(seal);
	ck_fails(decode(FILE_BYTES), GPUSNAP_E_UNSUPPORTED, "features 0x8000000000000000");
}
END_TEST

START_TEST(signed_nonsense_is_refused)
{
	gpusnap_seal seal;

	encode(make_seal());
	bytes[12]++;
	sign();
	ck_fails(decode(FILE_BYTES), GPUSNAP_E_FORMAT, "it is 4097 bytes");
	encode(make_seal());
	bytes[136] = 20;
	sign();
	ck_fails(decode(FILE_BYTES), GPUSNAP_E_FORMAT, "leaves are 2^20 bytes");
	encode(make_seal());
	bytes[4079] = 1;
	sign();
	ck_fails(decode(FILE_BYTES), GPUSNAP_E_FORMAT, "reserved byte 4079");
	encode(make_seal());
	bytes[80] ^= 1;
	sign();
	ck_fails(decode(FILE_BYTES), GPUSNAP_E_CORRUPT, "root is");
	seal = make_seal();
	seal.parent_root = seal.header;
	encode(seal);
	ck_fails(decode(FILE_BYTES), GPUSNAP_E_FORMAT, "names a parent");
	seal.required_features = GPUSNAP_FEATURE_DELTA;
	encode(seal);
	ck_ok(decode(FILE_BYTES));
	seal.parent_root = make_seal().parent_root;
	encode(seal);
	ck_fails(decode(FILE_BYTES), GPUSNAP_E_FORMAT, "but names no parent");
}
END_TEST

START_TEST(lengths_are_held_against_the_file)
{
	static const uint64_t headers[] = {0, 4095, FILE_BYTES, UINT64_MAX - 4095};
	gpusnap_seal seal = make_seal();

	for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
		seal.header_bytes = headers[i];
		encode(seal);
		ck_fails(decode(FILE_BYTES), GPUSNAP_E_FORMAT, "data begins at");
	}
	seal = make_seal();
	seal.leaf_count = 3 * 4096 / 16;
	encode(seal);
	ck_ok(decode(FILE_BYTES));
	seal.leaf_count++;
	encode(seal);
	ck_fails(decode(FILE_BYTES), GPUSNAP_E_FORMAT, "769 leaf digests do not fit");
	seal.leaf_count = UINT64_MAX;
	encode(seal);
	ck_fails(decode(FILE_BYTES), GPUSNAP_E_FORMAT, "do not fit");
}
END_TEST

START_TEST(root_changes_with_every_field_that_it_binds)
{
	gpusnap_seal first = make_seal(), other;

	gpusnap_seal_encode(&first, bytes);
	other = make_seal();
	other.header.bytes[0] ^= 1;
	gpusnap_seal_encode(&other, bytes);
	ck_assert(!gpusnap_digest_equal(first.root, other.root));
	other = make_seal();
	other.leaves.bytes[15] ^= 1;
	gpusnap_seal_encode(&other, bytes);
	ck_assert(!gpusnap_digest_equal(first.root, other.root));
	other = make_seal();
	other.file_bytes++;
	gpusnap_seal_encode(&other, bytes);
	ck_assert(!gpusnap_digest_equal(first.root, other.root));
	other = make_seal();
	other.version++;
	gpusnap_seal_encode(&other, bytes);
	ck_assert(!gpusnap_digest_equal(first.root, other.root));
}
END_TEST

START_TEST(uuids_are_written_and_read)
{
	gpusnap_seal seal = make_seal();
	uint8_t back[GPUSNAP_UUID_BYTES];
	char text[37];

	ck_assert_str_eq(
		gpusnap_uuid_format(seal.uuid, text), "00112233-4455-6677-8899-aabbccddeeff");
	ck_ok(gpusnap_uuid_parse(text, back, &err));
	ck_assert_mem_eq(back, seal.uuid, sizeof back);
	ck_ok(gpusnap_uuid_parse("00112233-4455-6677-8899-AABBCCDDEEFF", back, &err));
	ck_assert_mem_eq(back, seal.uuid, sizeof back);
	ck_fails(gpusnap_uuid_parse("", back, &err), GPUSNAP_E_FORMAT, "character 1;");
	ck_fails(gpusnap_uuid_parse("00112233-4455-6677-8899-aabbccddeef", back, &err),
		GPUSNAP_E_FORMAT, "character 36");
	ck_fails(gpusnap_uuid_parse("00112233-4455-6677-8899-aabbccddeeff0", back, &err),
		GPUSNAP_E_FORMAT, "character 37");
	ck_fails(gpusnap_uuid_parse("001122334455-6677-8899-aabbccddeeff--", back, &err),
		GPUSNAP_E_FORMAT, "character 9");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		fields_stand_where_the_specification_says,
		decode_returns_what_was_encoded,
		what_is_no_snapshot_is_said_to_be_none,
		unfinished_and_cut_files_are_said_to_be_incomplete,
		damage_is_found_before_anything_is_believed,
		newer_versions_and_required_features_are_refused,
		signed_nonsense_is_refused,
		lengths_are_held_against_the_file,
		root_changes_with_every_field_that_it_binds,
		uuids_are_written_and_read,
	};

	return RUN_SUITE("seal", tests);
}
