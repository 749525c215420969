/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes checkpoints that are hard to load, of the size that a bench wants:
 *
 *	make_views DIR [LAYERS EXPERTS INTERMEDIATE HIDDEN]
 *		many small experts, FP8 with block scales, in shards with an index, each shard in
 *the order of the official writer (wide dtypes first, then by name). Without sizes: 61 layers of
 *384 experts, 140,544 slices of a tensor-parallel rank of 8, 8.1 GiB in all. make_views --tiny FILE
 *COUNT one file of COUNT tensors of four bytes each
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <gpusnap/safetensors.h>

#include "tests/support/random.h"

enum { SHARDS = 8, BLOCK = 32, PATTERN_BYTES = 1 << 20, NAME_BYTES = 96 };

struct sizes {
	uint32_t layers, experts;
	uint64_t intermediate, hidden;
};

/* Tensors of one file; names and shapes are theirs. */
struct file {
	size_t count, room;
	gpusnap_tensor *tensors;
};

static void fail(const char *what)
{
	perror(what);
	exit(EXIT_FAILURE);
}

static void *checked(void *memory)
{
	if (!memory)
		fail("make_views: memory");
	return memory;
}

static FILE *create(const char *directory, const char *name)
{
	char path[4096];
	FILE *out;

	(void)snprintf(path, sizeof path, "%s%s%s", directory ? directory : "",
		directory ? "/" : "", name);
	out = fopen(path, "wb");
	if (!out)
		fail(path);
	return out;
}

static void finish(FILE *out)
{
	if (fclose(out))
		fail("make_views: write");
}

/* ---- tensors ---- */

static void add(
	struct file *file, const char *name, gpusnap_dtype dtype, uint64_t rows, uint64_t columns)
{
	uint64_t *shape = checked(calloc(2, sizeof *shape));

	if (file->count == file->room) {
		file->room = file->room ? 2 * file->room : 1024;
		file->tensors = checked(realloc(file->tensors, file->room * sizeof *file->tensors));
	}
	shape[0] = rows;
	shape[1] = columns;
	file->tensors[file->count++] = (gpusnap_tensor){
		.name = checked(strdup(name)),
		.name_length = strlen(name),
		.dtype = dtype,
		.rank = 2,
		.shape = shape,
		.end = rows * columns * gpusnap_dtype_bits(dtype) / 8,
	};
}

static int compare(const void *a, const void *b)
{
	const gpusnap_tensor *x = a, *y = b;
	uint32_t wide_x = gpusnap_dtype_bits(x->dtype), wide_y = gpusnap_dtype_bits(y->dtype);

	if (wide_x != wide_y)
		return wide_x > wide_y ? -1 : 1;
	return strcmp(x->name, y->name);
}

static uint64_t place(struct file *file)
{
	uint64_t at = 0;

	for (size_t i = 0; i < file->count; i++) {
		file->tensors[i].begin = at;
		at = file->tensors[i].end += at;
	}
	return at;
}

static void write_data(FILE *out, uint64_t bytes)
{
	static uint8_t pattern[PATTERN_BYTES + 4096];
	uint64_t seed = 1;

	random_fill(&seed, pattern, sizeof pattern);
	for (uint64_t done = 0, n; done < bytes; done += n) {
		n = bytes - done < PATTERN_BYTES ? bytes - done : PATTERN_BYTES;
		if (fwrite(pattern + random_below(&seed, 4096), 1, n, out) != n)
			fail("make_views: write");
	}
}

static void write_file(const char *directory, const char *name, struct file *file)
{
	FILE *out = create(directory, name);
	uint64_t bytes, length;
	uint8_t *header;
	gpusnap_error err;

	if (file->count)
		qsort(file->tensors, file->count, sizeof *file->tensors, compare);
	bytes = place(file);
	if (gpusnap_header_build(file->tensors, file->count, NULL, 0, 8, &header, &length, &err)) {
		(void)fprintf(stderr, "make_views: %s\n", err.message);
		exit(EXIT_FAILURE);
	}
	if (fwrite(header, 1, length, out) != length)
		fail("make_views: write");
	write_data(out, bytes);
	finish(out);
	gpusnap_header_bytes_free(header);
}

static void release(struct file *file)
{
	for (size_t i = 0; i < file->count; i++) {
		free((void *)(uintptr_t)file->tensors[i].name);
		free((void *)(uintptr_t)file->tensors[i].shape);
	}
	free(file->tensors);
	*file = (struct file){0};
}

/* ---- the checkpoint ---- */

static void add_matrix(struct file *file, uint32_t layer, uint32_t expert, const char *projection,
	uint64_t rows, uint64_t columns)
{
	static const char form[] = "model.layers.%u.mlp.experts.%u.%s.weight%s";
	char name[NAME_BYTES];

	(void)snprintf(name, sizeof name, form, layer, expert, projection, "");
	add(file, name, GPUSNAP_F8_E4M3, rows, columns);
	(void)snprintf(name, sizeof name, form, layer, expert, projection, "_scale_inv");
	add(file, name, GPUSNAP_F32, (rows + BLOCK - 1) / BLOCK, (columns + BLOCK - 1) / BLOCK);
}

static void add_layer(struct file *file, const struct sizes *sizes, uint32_t layer)
{
	char name[NAME_BYTES];

	(void)snprintf(name, sizeof name, "model.layers.%u.mlp.gate.weight", layer);
	add(file, name, GPUSNAP_BF16, sizes->experts, sizes->hidden);
	for (uint32_t e = 0; e < sizes->experts; e++) {
		add_matrix(file, layer, e, "gate_proj", sizes->intermediate, sizes->hidden);
		add_matrix(file, layer, e, "up_proj", sizes->intermediate, sizes->hidden);
		add_matrix(file, layer, e, "down_proj", sizes->hidden, sizes->intermediate);
	}
}

static void write_config(const char *directory, const struct sizes *sizes)
{
	FILE *out = create(directory, "config.json");

	(void)fprintf(out,
		"{\"model_type\": \"qwen3_moe\", \"hidden_act\": \"silu\", \"rms_norm_eps\": "
		"1e-6,\n"
		"\"num_hidden_layers\": %u, \"num_experts\": %u, \"num_experts_per_tok\": 1,\n"
		"\"hidden_size\": %llu, \"moe_intermediate_size\": %llu, \"norm_topk_prob\": "
		"true,\n"
		"\"quantization_config\": {\"quant_method\": \"fp8\", "
		"\"weight_block_size\": [%d, %d]}}\n",
		sizes->layers, sizes->experts, (unsigned long long)sizes->hidden,
		(unsigned long long)sizes->intermediate, BLOCK, BLOCK);
	finish(out);
}

static void index_file(FILE *index, const struct file *file, const char *shard, bool first)
{
	for (size_t i = 0; i < file->count; i++)
		(void)fprintf(index, "%s\n\"%s\": \"%s\"", first && i == 0 ? "" : ",",
			file->tensors[i].name, shard);
}

static void write_checkpoint(const char *directory, const struct sizes *sizes)
{
	FILE *index;

	if (mkdir(directory, 0777))
		fail(directory);
	write_config(directory, sizes);
	index = create(directory, "model.safetensors.index.json");
	(void)fputs("{\"metadata\": {}, \"weight_map\": {", index);
	for (uint32_t s = 0; s < SHARDS; s++) {
		uint32_t end = (s + 1) * sizes->layers / SHARDS;
		struct file file = {0};
		char name[NAME_BYTES];

		(void)snprintf(name, sizeof name, "model-%05u-of-%05u.safetensors", s + 1, SHARDS);
		for (uint32_t layer = s * sizes->layers / SHARDS; layer < end; layer++)
			add_layer(&file, sizes, layer);
		index_file(index, &file, name, s == 0);
		write_file(directory, name, &file);
		release(&file);
	}
	(void)fputs("}}\n", index);
	finish(index);
}

static void write_tiny(const char *path, uint32_t count)
{
	struct file file = {0};
	char name[NAME_BYTES];

	for (uint32_t i = 0; i < count; i++) {
		(void)snprintf(
			name, sizeof name, "model.layers.%u.block.%u.tiny", i % 1000, i / 1000);
		add(&file, name, GPUSNAP_F32, 1, 1);
	}
	write_file(NULL, path, &file);
	release(&file);
}

static uint32_t number(const char *text)
{
	unsigned long value = strtoul(text, NULL, 10);

	if (value == 0 || value > 1u << 24) {
		(void)fprintf(stderr, "make_views: '%s' is no size\n", text);
		exit(EXIT_FAILURE);
	}
	return (uint32_t)value;
}

int main(int argc, char **argv)
{
	struct sizes sizes = {61, 384, 256, 480};

	if (argc == 4 && strcmp(argv[1], "--tiny") == 0) {
		write_tiny(argv[2], number(argv[3]));
		return EXIT_SUCCESS;
	}
	if (argc != 2 && argc != 6) {
		(void)fputs("use: make_views DIR [LAYERS EXPERTS INTERMEDIATE HIDDEN]\n"
			    "     make_views --tiny FILE COUNT\n",
			stderr);
		return EXIT_FAILURE;
	}
	if (argc == 6)
		sizes = (struct sizes){
			number(argv[2]), number(argv[3]), number(argv[4]), number(argv[5])};
	if (sizes.layers < SHARDS)
		sizes.layers = SHARDS;
	write_checkpoint(argv[1], &sizes);
	return EXIT_SUCCESS;
}
