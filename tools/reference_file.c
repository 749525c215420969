/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/reference_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/fail.h"

static const uint64_t file_max = 1ull << 32;

/*
 * The whole file, placed so that its data section is 8-aligned: references are small, and the
 * format promises no alignment.
 */
static gpusnap_status read_stream(FILE *stream, const char *path, uint8_t **ret_bytes,
	uint64_t *ret_length, gpusnap_error *err)
{
	struct stat st;
	uint8_t *bytes;

	if (fstat(fileno(stream), &st))
		return gsn_fail_os(err, GPUSNAP_E_IO, errno, "'%s': %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > file_max)
		return gsn_fail(err, GPUSNAP_E_INVALID, "'%s' is no file of at most 4 GiB", path);
	bytes = malloc((size_t)st.st_size + 1);
	if (!bytes)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for '%s'", path);
	if (fread(bytes, 1, (size_t)st.st_size, stream) != (size_t)st.st_size) {
		free(bytes);
		return gsn_fail_os(err, GPUSNAP_E_IO, errno, "'%s' could not be read whole", path);
	}
	*ret_bytes = bytes;
	*ret_length = (uint64_t)st.st_size;
	return GPUSNAP_OK;
}

static gpusnap_status read_whole(
	const char *path, uint8_t **ret_bytes, uint64_t *ret_length, gpusnap_error *err)
{
	/* O_NONBLOCK: a FIFO must be refused, not waited for. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	FILE *stream = fd < 0 ? NULL : fdopen(fd, "rb");
	gpusnap_status s;

	if (!stream) {
		s = gsn_fail_os(err, GPUSNAP_E_IO, errno, "'%s': %s", path, strerror(errno));
		if (fd >= 0)
			(void)close(fd);
		return s;
	}
	s = read_stream(stream, path, ret_bytes, ret_length, err);
	(void)fclose(stream);
	return s;
}

/* Tensor MODULE.SUFFIX of this dtype and rank 2; NULL when the file has none. */
static gpusnap_status find_matrix(const struct reference_file *file, const char *module,
	const char *suffix, gpusnap_dtype dtype, const gpusnap_tensor **ret_tensor,
	gpusnap_error *err)
{
	char name[512];
	const gpusnap_tensor *t;

	(void)snprintf(name, sizeof name, "%s.%s", module, suffix);
	t = gpusnap_header_find(file->header, name);
	if (t && (t->dtype != dtype || t->rank != 2))
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"reference '%s' is %s of rank %u, expected %s of rank 2", name,
			gpusnap_dtype_name(t->dtype), t->rank, gpusnap_dtype_name(dtype));
	*ret_tensor = t;
	return GPUSNAP_OK;
}

static const void *data_of(const struct reference_file *file, const gpusnap_tensor *t)
{
	return t ? file->bytes + gpusnap_header_data_offset(file->header) + t->begin : NULL;
}

static gpusnap_status check_shapes(const char *module, const gpusnap_tensor *in,
	const gpusnap_tensor *out, const gpusnap_tensor *weights, const gpusnap_tensor *ids,
	gpusnap_error *err)
{
	if (!out || out->shape[0] != in->shape[0] || out->shape[1] != in->shape[1])
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"reference '%s.out' is missing or not of the shape of '%s.in'", module,
			module);
	if (!weights != !ids ||
		(ids && (ids->shape[0] != in->shape[0] || weights->shape[0] != in->shape[0] ||
				ids->shape[1] != weights->shape[1])))
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"reference '%s': router1 and router2 must both be [%llu, k]", module,
			(unsigned long long)in->shape[0]);
	return GPUSNAP_OK;
}

static gpusnap_status fill_module(const struct reference_file *file, struct reference_module *m,
	const gpusnap_tensor *in, gpusnap_error *err)
{
	const gpusnap_tensor *out;
	const gpusnap_tensor *weights;
	const gpusnap_tensor *ids;
	gpusnap_status s = find_matrix(file, m->name, "in", GPUSNAP_F32, &in, err);

	if (!s)
		s = find_matrix(file, m->name, "out", GPUSNAP_F32, &out, err);
	if (!s)
		s = find_matrix(file, m->name, "router1", GPUSNAP_F32, &weights, err);
	if (!s)
		s = find_matrix(file, m->name, "router2", GPUSNAP_I64, &ids, err);
	if (!s)
		s = check_shapes(m->name, in, out, weights, ids, err);
	if (s)
		return s;
	m->hidden = in->shape[1];
	m->top_k = ids ? ids->shape[1] : 0;
	m->values = (gpusnap_reference){
		.module = m->name,
		.tokens = (uint32_t)in->shape[0],
		.in = data_of(file, in),
		.out = data_of(file, out),
		.router_weights = data_of(file, weights),
		.router_ids = data_of(file, ids),
		.token_ids = file->token_count == in->shape[0] ? file->token_ids : NULL,
	};
	return GPUSNAP_OK;
}

static bool has_suffix(const gpusnap_tensor *t, const char *suffix)
{
	size_t length = strlen(suffix);

	return t->name_length > length && strcmp(t->name + t->name_length - length, suffix) == 0;
}

/* Router values whose input is not there cannot be compared: not a thing to pass over. */
static gpusnap_status check_has_input(
	const struct reference_file *file, const gpusnap_tensor *t, gpusnap_error *err)
{
	char name[512];
	int length = (int)(t->name_length - strlen(".router1"));

	if (!has_suffix(t, ".router1") && !has_suffix(t, ".router2"))
		return GPUSNAP_OK;
	(void)snprintf(name, sizeof name, "%.*s.in", length, t->name);
	if (gpusnap_header_find(file->header, name))
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_FORMAT,
		"there is '%s', but no '%s' to compute it from; dump the block's input too",
		t->name, name);
}

static gpusnap_status read_token_ids(struct reference_file *file, gpusnap_error *err)
{
	const gpusnap_tensor *t = gpusnap_header_find(file->header, "input_ids");
	const int64_t *ids = data_of(file, t);
	bool one_row = t && (t->rank == 1 || (t->rank == 2 && t->shape[0] == 1));
	uint64_t count = one_row ? t->shape[t->rank - 1] : 0;

	if (!t)
		return GPUSNAP_OK;
	if (t->dtype != GPUSNAP_I64 || !one_row)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"'input_ids' is %s of rank %u, expected I64 [tokens] or [1, tokens]",
			gpusnap_dtype_name(t->dtype), t->rank);
	file->token_ids = calloc(count + 1, sizeof *file->token_ids);
	if (!file->token_ids)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "out of memory");
	for (uint64_t i = 0; i < count; i++) {
		if (ids[i] < 0 || ids[i] > INT32_MAX)
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"'input_ids' has %lld at %llu, expected 0 to %d", (long long)ids[i],
				(unsigned long long)i, INT32_MAX);
		file->token_ids[i] = (int32_t)ids[i];
	}
	file->token_count = count;
	return GPUSNAP_OK;
}

static gpusnap_status find_modules(struct reference_file *file, gpusnap_error *err)
{
	size_t tensors = gpusnap_header_tensor_count(file->header);

	file->modules = calloc(tensors + 1, sizeof *file->modules);
	if (!file->modules)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "out of memory");
	for (size_t i = 0; i < tensors; i++) {
		const gpusnap_tensor *t = gpusnap_header_tensor(file->header, i);
		struct reference_module *m = &file->modules[file->count];
		gpusnap_status s = check_has_input(file, t, err);

		if (s)
			return s;
		if (!has_suffix(t, ".in"))
			continue;
		m->name = strndup(t->name, t->name_length - 3);
		if (!m->name)
			return gsn_fail(err, GPUSNAP_E_NOMEM, "out of memory");
		file->count++;
		s = fill_module(file, m, t, err);
		if (s)
			return s;
	}
	if (file->count == 0)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"the file names no MoE block: no tensor is called MODULE.in");
	return GPUSNAP_OK;
}

gpusnap_status reference_file_open(
	const char *path, struct reference_file *ret_file, gpusnap_error *err)
{
	struct reference_file file = {0};
	uint64_t length = 0;
	uint64_t json_bytes = 0;
	gpusnap_status s = read_whole(path, &file.bytes, &length, err);

	if (s)
		return s;
	s = gpusnap_header_measure(file.bytes, length, length, &json_bytes, err);
	if (!s)
		s = gpusnap_header_parse(
			(const char *)file.bytes + 8, json_bytes, length, &file.header, err);
	if (!s && gpusnap_header_data_offset(file.header) % 8)
		s = gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"data begins at offset %llu, no multiple of 8: write it with a safetensors "
			"library of 0.3 or newer",
			(unsigned long long)gpusnap_header_data_offset(file.header));
	if (!s)
		s = read_token_ids(&file, err);
	if (!s)
		s = find_modules(&file, err);
	if (s) {
		gsn_error_prefix(err, "reference '%s'", path);
		reference_file_close(&file);
		return s;
	}
	*ret_file = file;
	return GPUSNAP_OK;
}

void reference_file_close(struct reference_file *file)
{
	for (size_t i = 0; i < file->count; i++)
		free(file->modules[i].name);
	free(file->modules);
	free(file->token_ids);
	gpusnap_header_free(file->header);
	free(file->bytes);
	*file = (struct reference_file){0};
}
