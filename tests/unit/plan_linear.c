/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Twice the tensors take about twice the work to plan. Counted, not timed: the loader and the
 * parsers below it are compiled into this program once more so that each basic block that runs
 * calls the function here. Sorting makes the count grow by n log n: 2.2 at these sizes.
 */
#include <stdatomic.h>

#include <gpusnap/loader.h>

#include "tests/support/tempdir.h"

enum { SHARDS = 4, FEW = 4000 };

static char scratch[PATH_MAX];
static atomic_uint_fast64_t blocks; /* several threads plan */

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
	atomic_fetch_add_explicit(&blocks, 1, memory_order_relaxed);
}

static FILE *create(const char *folder, const char *name)
{
	char path[PATH_MAX];
	FILE *out;

	tempdir_join(path, folder, name);
	out = fopen(path, "wb");
	assert(out);
	return out;
}

/* Tensors of four bytes: names with numbers that are no order of the file's. */
static void write_shard(const char *folder, FILE *index, uint32_t shard, uint32_t count)
{
	char name[32], json[128], *text;
	size_t bytes = 0;
	FILE *out, *header;
	uint64_t length;

	header = open_memstream(&text, &bytes);
	assert(header);
	(void)snprintf(name, sizeof name, "shard-%u.safetensors", shard);
	for (uint32_t i = 0; i < count; i++) {
		(void)snprintf(json, sizeof json, "\"model.%u.block.%u.tiny\"", (i * 7919u) % count,
			shard);
		(void)fprintf(header,
			"%s%s:{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%u,%u]}",
			i ? "," : "{", json, 4 * i, 4 * i + 4);
		(void)fprintf(index, "%s%s:\"%s\"", shard || i ? "," : "", json, name);
	}
	(void)fputc('}', header);
	assert(fclose(header) == 0);
	length = bytes;
	out = create(folder, name);
	assert(fwrite(&length, sizeof length, 1, out) == 1 && fwrite(text, 1, bytes, out) == bytes);
	assert(fseek(out, 4L * (long)count - 1, SEEK_CUR) == 0 && fputc(0, out) == 0);
	assert(fclose(out) == 0);
	free(text);
}

static uint64_t blocks_to_plan(uint32_t count)
{
	gpusnap_json *plan;
	char folder[PATH_MAX];
	FILE *index, *config;
	gpusnap_error err;

	tempdir_make(folder, scratch);
	config = create(folder, "config.json");
	(void)fputs("{\"model_type\": \"of nobody\"}", config);
	assert(fclose(config) == 0);
	index = create(folder, "model.safetensors.index.json");
	(void)fputs("{\"weight_map\": {", index);
	for (uint32_t i = 0; i < SHARDS; i++)
		write_shard(folder, index, i, count / SHARDS);
	(void)fputs("}}", index);
	assert(fclose(index) == 0);
	blocks = 0;
	ck_ok(gpusnap_load_describe(folder, NULL, true, &plan, &err));
	ck_assert_int_eq(
		gpusnap_json_integer(gpusnap_json_get(plan, "tensors"), 0), (int64_t)count);
	gpusnap_json_free(plan);
	tempdir_remove(folder);
	return blocks;
}

START_TEST(twice_the_tensors_are_twice_the_work)
{
	uint64_t before = blocks_to_plan(FEW);

	ck_assert_uint_gt(before, FEW);
	for (uint32_t count = 2 * FEW; count <= 4 * FEW; count *= 2) {
		uint64_t after = blocks_to_plan(count);

		ck_assert_msg(after * 10 <= before * 22,
			"%u tensors: %llu blocks, half of them: %llu", count,
			(unsigned long long)after, (unsigned long long)before);
		before = after;
	}
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {twice_the_tensors_are_twice_the_work};
	int result;

	tempdir_make(scratch, NULL);
	result = RUN_SUITE("plan_linear", tests);
	tempdir_remove(scratch);
	return result;
}
