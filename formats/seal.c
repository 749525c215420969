/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seal, byte by byte (formats/gsnap.md, section "Seal"). Decoding believes nothing before the
 * seal's own digest has been found right; what it hands out is consistent with the file's length.
 */
#include <gpusnap/seal.h>

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"

enum {
	AT_MAGIC = 0,
	AT_VERSION = 8,
	AT_SEAL_BYTES = 12,
	AT_REQUIRED = 16,
	AT_OPTIONAL = 24,
	AT_UUID = 32,
	AT_HEADER = 48,
	AT_LEAVES = 64,
	AT_ROOT = 80,
	AT_PARENT = 96,
	AT_FILE_BYTES = 112,
	AT_HEADER_BYTES = 120,
	AT_LEAF_COUNT = 128,
	AT_LEAF_LOG2 = 136,
	AT_RESERVED = 140,
	AT_OWN_DIGEST = GPUSNAP_SEAL_BYTES - GPUSNAP_DIGEST_BYTES,
};

enum { LEAF_LOG2 = 16, DATA_ALIGNMENT = 4096 };

/* As PNG's: shows damage by text-mode copies, 7-bit links and end-of-file characters. */
static const uint8_t magic[8] = {0x89, 'G', 'S', 'N', 'P', 0x0d, 0x0a, 0x1a};

static void put_digest(uint8_t *bytes, gpusnap_digest digest)
{
	memcpy(bytes, digest.bytes, GPUSNAP_DIGEST_BYTES);
}

static gpusnap_digest get_digest(const uint8_t *bytes)
{
	gpusnap_digest digest;

	memcpy(digest.bytes, bytes, GPUSNAP_DIGEST_BYTES);
	return digest;
}

static gpusnap_digest compute_root(const gpusnap_seal *seal)
{
	return gpusnap_digest_root(
		seal->version, seal->header, seal->leaves, seal->file_bytes, seal->parent_root);
}

void gpusnap_seal_encode(gpusnap_seal *seal, uint8_t bytes[GPUSNAP_SEAL_BYTES])
{
	seal->root = compute_root(seal);
	memset(bytes, 0, GPUSNAP_SEAL_BYTES);
	memcpy(bytes + AT_MAGIC, magic, sizeof magic);
	gsn_put_le32(bytes + AT_VERSION, seal->version);
	gsn_put_le32(bytes + AT_SEAL_BYTES, GPUSNAP_SEAL_BYTES);
	gsn_put_le64(bytes + AT_REQUIRED, seal->required_features);
	gsn_put_le64(bytes + AT_OPTIONAL, seal->optional_features);
	memcpy(bytes + AT_UUID, seal->uuid, GPUSNAP_UUID_BYTES);
	put_digest(bytes + AT_HEADER, seal->header);
	put_digest(bytes + AT_LEAVES, seal->leaves);
	put_digest(bytes + AT_ROOT, seal->root);
	put_digest(bytes + AT_PARENT, seal->parent_root);
	gsn_put_le64(bytes + AT_FILE_BYTES, seal->file_bytes);
	gsn_put_le64(bytes + AT_HEADER_BYTES, seal->header_bytes);
	gsn_put_le64(bytes + AT_LEAF_COUNT, seal->leaf_count);
	gsn_put_le32(bytes + AT_LEAF_LOG2, LEAF_LOG2);
	put_digest(bytes + AT_OWN_DIGEST, gpusnap_digest_of(bytes, AT_OWN_DIGEST));
}

/* The magic is not where it should be: say what the bytes look like instead. */
static gpusnap_status fail_magic(
	const uint8_t bytes[GPUSNAP_SEAL_BYTES], uint64_t file_bytes, gpusnap_error *err)
{
	const uint8_t *found = memmem(bytes, GPUSNAP_SEAL_BYTES, magic, sizeof magic);
	bool blank = bytes[0] == 0 && memcmp(bytes, bytes + 1, GPUSNAP_SEAL_BYTES - 1) == 0;

	if (blank)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"incomplete snapshot: the last %u bytes are zero, expected a seal; the "
			"save was "
			"interrupted",
			GPUSNAP_SEAL_BYTES);
	if (found)
		return gsn_fail_at(err, GPUSNAP_E_FORMAT,
			file_bytes - GPUSNAP_SEAL_BYTES + (uint64_t)(found - bytes),
			"incomplete snapshot: its seal begins %u bytes before the end of the file, "
			"expected %u; the end is cut off",
			GPUSNAP_SEAL_BYTES - (unsigned)(found - bytes), GPUSNAP_SEAL_BYTES);
	return gsn_fail(err, GPUSNAP_E_FORMAT,
		"not a snapshot: no seal in the last %u bytes of %" PRIu64
		" (another format, or incomplete, or with bytes appended)",
		GPUSNAP_SEAL_BYTES, file_bytes);
}

static gpusnap_status check_own_digest(
	const uint8_t bytes[GPUSNAP_SEAL_BYTES], uint64_t seal_offset, gpusnap_error *err)
{
	gpusnap_digest stored = get_digest(bytes + AT_OWN_DIGEST);
	gpusnap_digest computed = gpusnap_digest_of(bytes, AT_OWN_DIGEST);
	char a[GPUSNAP_DIGEST_TEXT], b[GPUSNAP_DIGEST_TEXT];

	if (gpusnap_digest_equal(stored, computed))
		return GPUSNAP_OK;
	return gsn_fail_at(err, GPUSNAP_E_CORRUPT, seal_offset,
		"the seal is damaged: its digest is %s, its bytes give %s; the snapshot cannot be "
		"trusted",
		gpusnap_digest_format(stored, a), gpusnap_digest_format(computed, b));
}

static gpusnap_status check_version(const uint8_t bytes[GPUSNAP_SEAL_BYTES], gpusnap_error *err)
{
	uint32_t version = gsn_le32(bytes + AT_VERSION);
	uint64_t unknown = gsn_le64(bytes + AT_REQUIRED) & ~GPUSNAP_REQUIRED_FEATURES;

	if (version == 0)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "snapshot of version 0, the first is 1");
	if (version > GPUSNAP_FORMAT_VERSION)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"snapshot of version %u, this build reads %u; use a newer gpusnap", version,
			GPUSNAP_FORMAT_VERSION);
	if (unknown)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"snapshot requires features 0x%" PRIx64 ", this build knows 0x%" PRIx64
			"; use a newer gpusnap",
			unknown, GPUSNAP_REQUIRED_FEATURES);
	return GPUSNAP_OK;
}

/* Fields that version 1 fixes. */
static gpusnap_status check_constants(const uint8_t bytes[GPUSNAP_SEAL_BYTES], gpusnap_error *err)
{
	uint32_t length = gsn_le32(bytes + AT_SEAL_BYTES);
	uint32_t leaf_log2 = gsn_le32(bytes + AT_LEAF_LOG2);

	if (length != GPUSNAP_SEAL_BYTES)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "seal says that it is %u bytes, expected %u",
			length, GPUSNAP_SEAL_BYTES);
	if (leaf_log2 != LEAF_LOG2)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"seal says that leaves are 2^%u bytes, expected 2^%d", leaf_log2,
			LEAF_LOG2);
	for (size_t i = AT_RESERVED; i < AT_OWN_DIGEST; i++)
		if (bytes[i])
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"reserved byte %zu of the seal is %u, expected 0", i, bytes[i]);
	return GPUSNAP_OK;
}

static gpusnap_status check_parent(const uint8_t bytes[GPUSNAP_SEAL_BYTES], gpusnap_error *err)
{
	bool is_delta = gsn_le64(bytes + AT_REQUIRED) & GPUSNAP_FEATURE_DELTA;
	bool has_parent = !gpusnap_digest_is_zero(get_digest(bytes + AT_PARENT));

	if (has_parent && !is_delta)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"seal names a parent, but does not require the feature for deltas");
	if (is_delta && !has_parent)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"seal requires the feature for deltas, but names no parent");
	return GPUSNAP_OK;
}

static gpusnap_seal read_fields(const uint8_t bytes[GPUSNAP_SEAL_BYTES])
{
	gpusnap_seal seal = {
		.version = gsn_le32(bytes + AT_VERSION),
		.required_features = gsn_le64(bytes + AT_REQUIRED),
		.optional_features = gsn_le64(bytes + AT_OPTIONAL),
		.header = get_digest(bytes + AT_HEADER),
		.leaves = get_digest(bytes + AT_LEAVES),
		.root = get_digest(bytes + AT_ROOT),
		.parent_root = get_digest(bytes + AT_PARENT),
		.file_bytes = gsn_le64(bytes + AT_FILE_BYTES),
		.header_bytes = gsn_le64(bytes + AT_HEADER_BYTES),
		.leaf_count = gsn_le64(bytes + AT_LEAF_COUNT),
	};

	memcpy(seal.uuid, bytes + AT_UUID, GPUSNAP_UUID_BYTES);
	return seal;
}

static gpusnap_status check_root(const gpusnap_seal *seal, gpusnap_error *err)
{
	gpusnap_digest computed = compute_root(seal);
	char a[GPUSNAP_DIGEST_TEXT], b[GPUSNAP_DIGEST_TEXT];

	if (gpusnap_digest_equal(seal->root, computed))
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_CORRUPT,
		"root is %s, the seal's fields give %s; the snapshot cannot be trusted",
		gpusnap_digest_format(seal->root, a), gpusnap_digest_format(computed, b));
}

/* Lengths against the file, before anybody allocates by them. */
static gpusnap_status check_lengths(
	const gpusnap_seal *seal, uint64_t file_bytes, gpusnap_error *err)
{
	uint64_t room = file_bytes - GPUSNAP_SEAL_BYTES;

	if (seal->file_bytes != file_bytes)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"%s snapshot: the file is %" PRIu64 " bytes, its seal says %" PRIu64,
			file_bytes < seal->file_bytes ? "incomplete" : "overlong", file_bytes,
			seal->file_bytes);
	if (seal->header_bytes == 0 || seal->header_bytes % DATA_ALIGNMENT ||
		seal->header_bytes > room)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"data begins at %" PRIu64
			", expected a multiple of %d in a file of %" PRIu64,
			seal->header_bytes, DATA_ALIGNMENT, file_bytes);
	if (seal->leaf_count > (room - seal->header_bytes) / GPUSNAP_DIGEST_BYTES)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"%" PRIu64 " leaf digests do not fit a file of %" PRIu64 " bytes",
			seal->leaf_count, file_bytes);
	return GPUSNAP_OK;
}

gpusnap_status gpusnap_seal_decode(const uint8_t bytes[GPUSNAP_SEAL_BYTES], uint64_t file_bytes,
	gpusnap_seal *ret_seal, gpusnap_error *err)
{
	gpusnap_seal seal;
	gpusnap_status status;

	if (file_bytes < GPUSNAP_SEAL_BYTES)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"not a snapshot: %" PRIu64 " bytes, the seal alone has %u", file_bytes,
			GPUSNAP_SEAL_BYTES);
	if (memcmp(bytes + AT_MAGIC, magic, sizeof magic) != 0)
		return fail_magic(bytes, file_bytes, err);
	status = check_own_digest(bytes, file_bytes - GPUSNAP_SEAL_BYTES, err);
	if (status)
		return status;
	status = check_version(bytes, err);
	if (status)
		return status;
	status = check_constants(bytes, err);
	if (!status)
		status = check_parent(bytes, err);
	if (status)
		return status;
	seal = read_fields(bytes);
	status = check_root(&seal, err);
	if (status)
		return status;
	status = check_lengths(&seal, file_bytes, err);
	if (status)
		return status;
	*ret_seal = seal;
	return GPUSNAP_OK;
}

/* True where the text form has a hyphen: 8-4-4-4-12 digits. */
static bool is_hyphen(int position)
{
	return position == 8 || position == 13 || position == 18 || position == 23;
}

char *gpusnap_uuid_format(const uint8_t uuid[GPUSNAP_UUID_BYTES], char text[37])
{
	static const char digits[] = "0123456789abcdef";
	int digit = 0;

	for (int i = 0; i < 36; i++) {
		if (is_hyphen(i)) {
			text[i] = '-';
			continue;
		}
		text[i] = digits[uuid[digit / 2] >> (digit % 2 ? 0 : 4) & 15];
		digit++;
	}
	text[36] = '\0';
	return text;
}

gpusnap_status gpusnap_uuid_parse(
	const char *text, uint8_t ret_uuid[GPUSNAP_UUID_BYTES], gpusnap_error *err)
{
	uint8_t uuid[GPUSNAP_UUID_BYTES] = {0};
	char quoted[GSN_QUOTE_BYTES];
	int digit = 0, at;

	for (at = 0; at < 36; at++) {
		int value = gsn_hex_value(text[at]);

		if (is_hyphen(at) ? text[at] != '-' : value < 0)
			break;
		if (is_hyphen(at))
			continue;
		uuid[digit / 2] = (uint8_t)(uuid[digit / 2] << 4 | value);
		digit++;
	}
	if (at < 36 || text[36] != '\0')
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"'%s' is no UUID: character %d; expected 8-4-4-4-12 hexadecimal digits",
			gsn_quote(text, strlen(text), quoted), at + 1);
	memcpy(ret_uuid, uuid, sizeof uuid);
	return GPUSNAP_OK;
}
