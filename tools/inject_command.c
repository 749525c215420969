/* SPDX-License-Identifier: Apache-2.0 */
/* The agent command "inject": damage live state, so that its discovery can be watched. */
#include <stdlib.h>
#include <string.h>

#include "formats/base/fail.h"
#include "tools/server.h"

struct injection {
	const char *kind;
	const char *name;
	uint64_t offset; /* range of the buffer that is touched */
	uint64_t length;
	uint64_t element_bytes;
	long long value; /* of set and add; -1: not given */
	long long rows;	 /* of transpose */
	uint8_t *before;
	uint8_t *other; /* as many bytes: of swap and copy */
	uint8_t *after;
};

static void zero(struct injection *in)
{
	memset(in->after, 0, in->length);
}

static void flip(struct injection *in)
{
	in->after[0] = (uint8_t)(in->before[0] ^ 1);
}

/* Each element moves up by one, the last becomes the first. */
static void shift(struct injection *in)
{
	uint64_t element = in->element_bytes < in->length ? in->element_bytes : 0;

	memcpy(in->after + element, in->before, in->length - element);
	memcpy(in->after, in->before + in->length - element, element);
}

/* Bits of the element at `at`, as a little-endian integer. */
static uint64_t get_element(const uint8_t *at, uint64_t bytes)
{
	uint64_t value = 0;

	for (uint64_t i = bytes; i-- > 0;)
		value = value << 8 | at[i];
	return value;
}

static void put_elements(struct injection *in, bool add)
{
	uint64_t bytes = in->element_bytes < 8 ? in->element_bytes : 8;

	for (uint64_t at = 0; at + bytes <= in->length; at += bytes) {
		uint64_t value = (uint64_t)in->value;

		if (add)
			value += get_element(in->before + at, bytes);
		for (uint64_t i = 0; i < bytes; i++)
			in->after[at + i] = (uint8_t)(value >> 8 * i);
	}
}

static void set(struct injection *in)
{
	put_elements(in, false);
}

static void add(struct injection *in)
{
	put_elements(in, true);
}

static void take_other(struct injection *in)
{
	memcpy(in->after, in->other, in->length);
}

static void swap_nibbles(struct injection *in)
{
	for (uint64_t i = 0; i < in->length; i++)
		in->after[i] = (uint8_t)(in->before[i] << 4 | in->before[i] >> 4);
}

static void transpose(struct injection *in)
{
	uint64_t element = in->element_bytes, rows = (uint64_t)in->rows;
	uint64_t columns = in->length / element / rows;

	for (uint64_t i = 0; i < rows * columns; i++)
		memcpy(in->after + (i % columns * rows + i / columns) * element,
			in->before + i * element, element);
}

enum needs { NEEDS_NOTHING, NEEDS_VALUE, NEEDS_FROM, NEEDS_SOURCE, NEEDS_ROWS };

static const struct kind {
	const char *name;
	void (*damage)(struct injection *in);
	enum needs needs;
} kinds[] = {
	{"zero", zero, NEEDS_NOTHING},
	{"flip", flip, NEEDS_NOTHING},
	{"shift", shift, NEEDS_NOTHING},
	{"set", set, NEEDS_VALUE},
	{"add", add, NEEDS_VALUE},
	{"swap", take_other, NEEDS_FROM},
	{"copy", take_other, NEEDS_SOURCE},
	{"nibbles", swap_nibbles, NEEDS_NOTHING},
	{"transpose", transpose, NEEDS_ROWS},
};

static const struct kind *find_kind(const char *name)
{
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		if (strcmp(kinds[i].name, name) == 0)
			return &kinds[i];
	return NULL;
}

/* What the request names, as it was given; -1 and NULL: not given. */
struct request {
	const struct kind *kind;
	long long offset, length, from;
	const char *source;
};

static gpusnap_status check_needs(
	const struct injection *in, const struct request *request, gpusnap_error *err)
{
	static const char *const options[] = {[NEEDS_VALUE] = "a value",
		[NEEDS_FROM] = "an offset to swap with",
		[NEEDS_SOURCE] = "a buffer to copy from",
		[NEEDS_ROWS] = "a number of rows"};
	const bool given[] = {[NEEDS_NOTHING] = true,
		[NEEDS_VALUE] = in->value >= 0,
		[NEEDS_FROM] = request->from >= 0,
		[NEEDS_SOURCE] = request->source != NULL,
		[NEEDS_ROWS] = in->rows > 0};

	if (given[request->kind->needs])
		return GPUSNAP_OK;
	return gsn_fail(
		err, GPUSNAP_E_INVALID, "%s needs %s", in->kind, options[request->kind->needs]);
}

static gpusnap_status choose_range(struct injection *in, const struct request *request,
	const gpusnap_buffer_info *buffer, gpusnap_error *err)
{
	bool one_byte = request->kind->damage == flip;

	in->offset = request->offset >= 0 ? (uint64_t)request->offset
		     : one_byte		  ? buffer->bytes / 2
					  : 0;
	if (in->offset >= buffer->bytes)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"offset %llu is outside buffer '%s' of %llu bytes",
			(unsigned long long)in->offset, in->name,
			(unsigned long long)buffer->bytes);
	in->length = one_byte		    ? 1
		     : request->length >= 0 ? (uint64_t)request->length
					    : buffer->bytes - in->offset;
	if (in->length == 0 || in->length > buffer->bytes - in->offset)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%llu bytes from offset %llu are not inside buffer '%s' of %llu bytes",
			(unsigned long long)in->length, (unsigned long long)in->offset, in->name,
			(unsigned long long)buffer->bytes);
	in->element_bytes = (gpusnap_dtype_bits(buffer->dtype) + 7) / 8;
	if (request->kind->damage == transpose &&
		in->length % ((uint64_t)in->rows * in->element_bytes))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%llu bytes are not %lld equal rows of %llu-byte elements",
			(unsigned long long)in->length, in->rows,
			(unsigned long long)in->element_bytes);
	return GPUSNAP_OK;
}

/* Read the range, and the other one where there is another. */
static gpusnap_status read_ranges(gpusnap_registry *registry, struct injection *in,
	const struct request *request, gpusnap_error *err)
{
	gpusnap_status s;

	in->before = calloc(in->length, 1);
	in->other = calloc(in->length, 1);
	in->after = calloc(in->length, 1);
	if (!in->before || !in->other || !in->after)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %llu bytes of '%s'",
			(unsigned long long)in->length, in->name);
	s = gpusnap_buffer_read(registry, in->name, in->offset, in->before, in->length, err);
	memcpy(in->after, in->before, in->length);
	if (!s && request->kind->needs == NEEDS_FROM)
		s = gpusnap_buffer_read(
			registry, in->name, (uint64_t)request->from, in->other, in->length, err);
	if (!s && request->kind->needs == NEEDS_SOURCE)
		s = gpusnap_buffer_read(registry, request->source,
			request->from >= 0 ? (uint64_t)request->from : 0, in->other, in->length,
			err);
	return s;
}

static gpusnap_status write_ranges(gpusnap_registry *registry, const struct injection *in,
	const struct request *request, gpusnap_error *err)
{
	gpusnap_status s;

	if (memcmp(in->before, in->after, in->length) == 0)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s changes nothing in buffer '%s': its bytes are alike", in->kind,
			in->name);
	s = gpusnap_buffer_write(registry, in->name, in->offset, in->after, in->length, err);
	if (!s && request->kind->needs == NEEDS_FROM)
		s = gpusnap_buffer_write(
			registry, in->name, (uint64_t)request->from, in->before, in->length, err);
	return s;
}

static uint64_t bytes_changed(const struct injection *in)
{
	uint64_t changed = 0;

	for (uint64_t i = 0; i < in->length; i++)
		changed += in->before[i] != in->after[i];
	return changed;
}

static gpusnap_status read_request(
	gpusnap_json *args, struct injection *in, struct request *request, gpusnap_error *err)
{
	gpusnap_status s = gpusnap_json_unpack(args, "inject", err,
		"{s:s,s:s,s?I,s?I,s?I,s?I,s?I,s?s}", "kind", &in->kind, "buffer", &in->name,
		"offset", &request->offset, "length", &request->length, "value", &in->value, "from",
		&request->from, "rows", &in->rows, "source", &request->source);

	if (s)
		return s;
	request->kind = find_kind(in->kind);
	if (!request->kind)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"kind '%s' is none of zero, flip, shift, set, add, swap, copy, nibbles, "
			"transpose",
			in->kind);
	return check_needs(in, request, err);
}

gpusnap_status inject_command(gpusnap_registry *registry, void *user, gpusnap_json *args,
	gpusnap_json **ret_result, gpusnap_error *err)
{
	struct injection in = {.value = -1, .rows = -1};
	struct request request = {.offset = -1, .length = -1, .from = -1};
	gpusnap_buffer_info buffer;
	gpusnap_status s = read_request(args, &in, &request, err);

	(void)user;
	if (!s)
		s = gpusnap_buffer_find(registry, in.name, &buffer, err);
	if (!s)
		s = choose_range(&in, &request, &buffer, err);
	if (!s)
		s = read_ranges(registry, &in, &request, err);
	if (!s) {
		request.kind->damage(&in);
		s = write_ranges(registry, &in, &request, err);
	}
	if (!s)
		*ret_result = gpusnap_json_pack("{s:s,s:s,s:I,s:I}", "kind", in.kind, "buffer",
			in.name, "offset", (long long)in.offset, "bytes_changed",
			(long long)bytes_changed(&in));
	free(in.before);
	free(in.other);
	free(in.after);
	return s;
}
