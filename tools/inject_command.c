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
	uint8_t *before;
	uint8_t *after;
};

static gpusnap_status choose_range(struct injection *in, const gpusnap_buffer_info *buffer,
	int64_t offset, int64_t length, gpusnap_error *err)
{
	int flip = strcmp(in->kind, "flip") == 0;

	in->offset = offset >= 0 ? (uint64_t)offset : flip ? buffer->bytes / 2 : 0;
	if (in->offset >= buffer->bytes)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"offset %llu is outside buffer '%s' of %llu bytes",
			(unsigned long long)in->offset, in->name,
			(unsigned long long)buffer->bytes);
	in->length = flip ? 1 : length >= 0 ? (uint64_t)length : buffer->bytes - in->offset;
	if (in->length == 0 || in->length > buffer->bytes - in->offset)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%llu bytes from offset %llu are not inside buffer '%s' of %llu bytes",
			(unsigned long long)in->length, (unsigned long long)in->offset, in->name,
			(unsigned long long)buffer->bytes);
	in->element_bytes = (gpusnap_dtype_bits(buffer->dtype) + 7) / 8;
	return GPUSNAP_OK;
}

static gpusnap_status damage(struct injection *in, gpusnap_error *err)
{
	uint64_t element = in->element_bytes < in->length ? in->element_bytes : 0;

	if (strcmp(in->kind, "zero") == 0) {
		memset(in->after, 0, in->length);
	} else if (strcmp(in->kind, "flip") == 0) {
		in->after[0] = (uint8_t)(in->before[0] ^ 1);
	} else if (strcmp(in->kind, "shift") == 0) {
		memcpy(in->after + element, in->before, in->length - element);
		memcpy(in->after, in->before + in->length - element, element);
	} else {
		return gsn_fail(
			err, GPUSNAP_E_INVALID, "kind '%s' is none of zero, flip, shift", in->kind);
	}
	if (memcmp(in->before, in->after, in->length) == 0)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s changes nothing in buffer '%s': its bytes are alike", in->kind,
			in->name);
	return GPUSNAP_OK;
}

static uint64_t bytes_changed(const struct injection *in)
{
	uint64_t changed = 0;

	for (uint64_t i = 0; i < in->length; i++)
		changed += in->before[i] != in->after[i];
	return changed;
}

gpusnap_status inject_command(gpusnap_registry *registry, void *user, gpusnap_json *args,
	gpusnap_json **ret_result, gpusnap_error *err)
{
	struct injection in = {0};
	gpusnap_buffer_info buffer;
	long long offset = -1;
	long long length = -1;
	gpusnap_status s;

	(void)user;
	s = gpusnap_json_unpack(args, "inject", err, "{s:s,s:s,s?I,s?I}", "kind", &in.kind,
		"buffer", &in.name, "offset", &offset, "length", &length);
	if (!s)
		s = gpusnap_buffer_find(registry, in.name, &buffer, err);
	if (!s)
		s = choose_range(&in, &buffer, offset, length, err);
	if (s)
		return s;
	in.before = calloc(in.length, 1);
	in.after = calloc(in.length, 1);
	if (!in.before || !in.after)
		s = gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %llu bytes of '%s'",
			(unsigned long long)in.length, in.name);
	if (!s)
		s = gpusnap_buffer_read(registry, in.name, in.offset, in.before, in.length, err);
	if (!s)
		s = damage(&in, err);
	if (!s)
		s = gpusnap_buffer_write(registry, in.name, in.offset, in.after, in.length, err);
	if (!s)
		*ret_result = gpusnap_json_pack("{s:s,s:s,s:I,s:I}", "kind", in.kind, "buffer",
			in.name, "offset", (long long)in.offset, "bytes_changed",
			(long long)bytes_changed(&in));
	free(in.before);
	free(in.after);
	return s;
}
