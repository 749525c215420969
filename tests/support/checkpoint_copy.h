/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_CHECKPOINT_COPY_H
#define GPUSNAP_TEST_CHECKPOINT_COPY_H
/*
 * Checkpoints as tests see them: all tensors of a directory in memory, read by the safetensors
 * parser and nothing of the loader, and written again, whole or damaged.
 */
#include <gpusnap/safetensors.h>

#include "tests/support/file.h"
#include "tests/support/tempdir.h"

struct test_tensor {
	char name[160]; /* empty: left out when the checkpoint is written */
	gpusnap_dtype dtype;
	uint32_t rank;
	uint64_t shape[4];
	uint64_t bytes;
	const uint8_t *data; /* into one of the files */
};

struct test_checkpoint {
	char directory[PATH_MAX];
	size_t file_count, tensor_count;
	uint8_t *files[16];
	gpusnap_header *headers[16];
	struct test_tensor tensors[1024];
};

static inline void test_checkpoint_add(
	struct test_checkpoint *checkpoint, const gpusnap_tensor *tensor, const uint8_t *data)
{
	struct test_tensor *to = &checkpoint->tensors[checkpoint->tensor_count++];

	assert(checkpoint->tensor_count <= 1024 && tensor->rank <= 4);
	assert(tensor->name_length < sizeof to->name);
	memcpy(to->name, tensor->name, tensor->name_length + 1);
	to->dtype = tensor->dtype;
	to->rank = tensor->rank;
	memcpy(to->shape, tensor->shape, tensor->rank * sizeof to->shape[0]);
	to->bytes = tensor->end - tensor->begin;
	to->data = data + tensor->begin;
}

static inline void test_checkpoint_read_file(struct test_checkpoint *checkpoint, const char *name)
{
	size_t i = checkpoint->file_count++;
	char path[PATH_MAX];
	uint64_t json_bytes;
	size_t bytes;
	gpusnap_error err;

	assert(i < 16);
	tempdir_join(path, checkpoint->directory, name);
	checkpoint->files[i] = read_file(path, &bytes);
	ck_ok(gpusnap_header_measure(checkpoint->files[i], bytes, bytes, &json_bytes, &err));
	ck_ok(gpusnap_header_parse((const char *)checkpoint->files[i] + 8, json_bytes, bytes,
		&checkpoint->headers[i], &err));
	for (size_t k = 0; k < gpusnap_header_tensor_count(checkpoint->headers[i]); k++)
		test_checkpoint_add(checkpoint, gpusnap_header_tensor(checkpoint->headers[i], k),
			checkpoint->files[i] + gpusnap_header_data_offset(checkpoint->headers[i]));
}

/* All model*.safetensors of a directory; the caller frees it with test_checkpoint_free(). */
static inline struct test_checkpoint *test_checkpoint_read(const char *directory)
{
	struct test_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
	DIR *stream = opendir(directory);
	struct dirent *entry;

	assert(checkpoint && stream);
	assert(snprintf(checkpoint->directory, PATH_MAX, "%s", directory) < PATH_MAX);
	while ((entry = readdir(stream))) {
		const char *end = strstr(entry->d_name, ".safetensors");

		if (strncmp(entry->d_name, "model", 5) == 0 && end && end[12] == '\0')
			test_checkpoint_read_file(checkpoint, entry->d_name);
	}
	(void)closedir(stream);
	assert(checkpoint->tensor_count);
	return checkpoint;
}

static inline void test_checkpoint_free(struct test_checkpoint *checkpoint)
{
	for (size_t i = 0; i < checkpoint->file_count; i++) {
		free(checkpoint->files[i]);
		gpusnap_header_free(checkpoint->headers[i]);
	}
	free(checkpoint);
}

static inline struct test_tensor *test_checkpoint_find(
	struct test_checkpoint *checkpoint, const char *name)
{
	for (size_t i = 0; i < checkpoint->tensor_count; i++)
		if (strcmp(checkpoint->tensors[i].name, name) == 0)
			return &checkpoint->tensors[i];
	ck_abort_msg("the checkpoint has no tensor %s", name);
	return NULL;
}

static inline void copy_file(const char *from, const char *to)
{
	size_t length;
	uint8_t *bytes = read_file(from, &length);

	file_write(to, bytes, length);
	free(bytes);
}

/* Copy config, index and shards of a directory into an existing one. */
static inline void copy_checkpoint(const char *from, const char *to)
{
	DIR *stream = opendir(from);
	struct dirent *entry;
	char source[PATH_MAX], target[PATH_MAX];

	assert(stream);
	while ((entry = readdir(stream))) {
		if (strncmp(entry->d_name, "model", 5) != 0 &&
			strcmp(entry->d_name, "config.json") != 0)
			continue;
		tempdir_join(source, from, entry->d_name);
		tempdir_join(target, to, entry->d_name);
		copy_file(source, target);
	}
	(void)closedir(stream);
}

/* Replace every `from` in a text file; there must be one. */
static inline void replace_in_file(
	const char *directory, const char *name, const char *from, const char *to)
{
	char path[PATH_MAX];
	size_t length, left, found = 0;
	const uint8_t *at, *hit;
	uint8_t *text;
	FILE *out;

	tempdir_join(path, directory, name);
	text = read_file(path, &length);
	out = fopen(path, "w");
	assert(out);
	for (at = text, left = length; (hit = memmem(at, left, from, strlen(from))); found++) {
		assert(fwrite(at, 1, (size_t)(hit - at), out) == (size_t)(hit - at));
		assert(fputs(to, out) >= 0);
		at = hit + strlen(from);
		left = length - (size_t)(at - text);
	}
	assert(fwrite(at, 1, left, out) == left);
	assert(fclose(out) == 0);
	free(text);
	ck_assert_msg(found > 0, "%s holds no '%s'", name, from);
}

/* Write the tensors that have a name to one file, in their order. */
static inline void test_checkpoint_write(
	const struct test_checkpoint *checkpoint, const char *directory, const char *name)
{
	gpusnap_tensor *tensors = calloc(checkpoint->tensor_count, sizeof *tensors);
	char path[PATH_MAX];
	uint64_t length, at = 0;
	size_t count = 0;
	uint8_t *header;
	gpusnap_error err;
	FILE *out;

	tempdir_join(path, directory, name);
	out = fopen(path, "wb");
	assert(tensors && out);
	for (size_t i = 0; i < checkpoint->tensor_count; i++) {
		const struct test_tensor *t = &checkpoint->tensors[i];

		if (!*t->name)
			continue;
		tensors[count++] = (gpusnap_tensor){
			t->name, strlen(t->name), t->dtype, t->rank, t->shape, at, at + t->bytes};
		at += t->bytes;
	}
	ck_ok(gpusnap_header_build(tensors, count, NULL, 0, 8, &header, &length, &err));
	assert(fwrite(header, 1, length, out) == length);
	for (size_t i = 0; i < checkpoint->tensor_count; i++)
		if (*checkpoint->tensors[i].name)
			assert(fwrite(checkpoint->tensors[i].data, 1, checkpoint->tensors[i].bytes,
				       out) == checkpoint->tensors[i].bytes);
	assert(fclose(out) == 0);
	gpusnap_header_bytes_free(header);
	free(tensors);
}

#endif
