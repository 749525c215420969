/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/delta_make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"

static void must(int condition, const char *what)
{
	if (!condition) {
		(void)fprintf(stderr, "delta_make: %s\n", what);
		abort();
	}
}

static void *allocate(size_t count, size_t size)
{
	void *memory = gsn_alloc(count, size);

	must(memory != NULL, "no memory");
	return memory;
}

static gpusnap_header *parse(const struct gsnap_file *file)
{
	gpusnap_header *header;
	gpusnap_error err;

	if (gpusnap_header_parse((const char *)file->bytes + 8, file->header_bytes - 8,
		    file->length, &header, &err))
		must(0, err.message);
	return header;
}

gpusnap_digest root_of(const struct gsnap_file *file)
{
	gpusnap_digest root;

	memcpy(root.bytes, file->bytes + file->seal_at + 80, sizeof root.bytes);
	return root;
}

static bool leaf_changed(
	const struct gsnap_file *before, const struct gsnap_file *after, uint64_t leaf)
{
	return memcmp(before->bytes + before->leaves_at + 16 * leaf,
		       after->bytes + after->leaves_at + 16 * leaf, 16) != 0;
}

/* Leaves of the file from `first` on that changed, as runs of an entry. */
static void add_runs(gpusnap_delta_entry *entry, const struct gsnap_file *before,
	const struct gsnap_file *after, uint64_t first)
{
	uint64_t count = gpusnap_leaf_count(entry->bytes);

	entry->changed = allocate((size_t)count, sizeof *entry->changed);
	for (uint64_t i = 0; i < count; i++) {
		gpusnap_delta_run *last = &entry->changed[entry->run_count];

		if (!leaf_changed(before, after, first + i))
			continue;
		if (entry->run_count && last[-1].first + last[-1].count == i) {
			last[-1].count++;
			continue;
		}
		*last = (gpusnap_delta_run){.first = i, .count = 1};
		entry->run_count++;
	}
}

gpusnap_plan_delta *make_changes(const struct gsnap_file *before, const struct gsnap_file *after,
	const char *parent, uint32_t depth)
{
	gpusnap_plan_delta *delta = allocate(1, sizeof *delta);
	gpusnap_header *header = parse(after);
	size_t count = gpusnap_header_tensor_count(header) - 2;
	uint64_t leaf = 0;

	delta->parent = gsn_strdup(parent);
	delta->depth = depth;
	delta->entry_count = (uint32_t)count;
	delta->entries = allocate(count, sizeof *delta->entries);
	for (size_t i = 0; i < count; i++) {
		const gpusnap_tensor *tensor = gpusnap_header_tensor(header, i);
		gpusnap_delta_entry *entry = &delta->entries[i];

		entry->name = gsn_strdup(tensor->name);
		entry->bytes = tensor->end - tensor->begin;
		add_runs(entry, before, after, leaf);
		leaf += gpusnap_leaf_count(entry->bytes);
	}
	gpusnap_header_free(header);
	return delta;
}

/* ---- the file ---- */

struct held {
	uint32_t entry;
	uint64_t bytes;
	char name[40];
};

static uint64_t alignment_of(uint64_t bytes)
{
	return gsn_min(bytes & (0 - bytes), 4096);
}

static int compare_held(const void *a, const void *b)
{
	const struct held *x = a;
	const struct held *y = b;
	uint64_t left = alignment_of(x->bytes), right = alignment_of(y->bytes);

	if (left != right)
		return left > right ? -1 : 1;
	return (x->entry > y->entry) - (x->entry < y->entry);
}

static struct held *list_held(const gpusnap_plan_delta *delta, size_t *ret_count)
{
	struct held *held = allocate(delta->entry_count, sizeof *held);
	size_t count = 0;

	for (uint32_t i = 0; i < delta->entry_count; i++) {
		if (!delta->entries[i].run_count)
			continue;
		held[count].entry = i;
		held[count].bytes = gpusnap_delta_bytes(&delta->entries[i]);
		(void)snprintf(held[count].name, sizeof held[count].name, GPUSNAP_DELTA_FORMAT,
			(unsigned long long)i);
		count++;
	}
	qsort(held, count, sizeof *held, compare_held);
	*ret_count = count;
	return held;
}

static gpusnap_tensor bytes_tensor(
	const char *name, uint32_t rank, const uint64_t *shape, uint64_t begin, uint64_t bytes)
{
	return (gpusnap_tensor){.name = name,
		.name_length = strlen(name),
		.dtype = GPUSNAP_U8,
		.rank = rank,
		.shape = shape,
		.begin = begin,
		.end = begin + bytes};
}

/* Header bytes, and the lengths of everything. */
static struct gsnap_file make_header(
	const gpusnap_plan *plan, const struct held *held, size_t count, uint64_t leaf_count)
{
	const uint64_t leaves_shape[] = {leaf_count, 16}, seal_shape[] = {GPUSNAP_SEAL_BYTES};
	gpusnap_tensor *tensors = allocate(count + 2, sizeof *tensors);
	char *text = gpusnap_plan_encode(plan);
	gpusnap_metadata metadata = {GPUSNAP_PLAN_KEY, text};
	struct gsnap_file file = {0};
	uint64_t at = 0, header_bytes;
	uint8_t *header;
	gpusnap_error err;

	must(text != NULL, "plan cannot be encoded");
	for (size_t i = 0; i < count; i++) {
		tensors[i] = bytes_tensor(held[i].name, 1, &held[i].bytes, at, held[i].bytes);
		at += held[i].bytes;
	}
	tensors[count] = bytes_tensor(GPUSNAP_LEAVES_NAME, 2, leaves_shape, at, 16 * leaf_count);
	tensors[count + 1] = bytes_tensor(
		GPUSNAP_SEAL_NAME, 1, seal_shape, at + 16 * leaf_count, GPUSNAP_SEAL_BYTES);
	if (gpusnap_header_build(
		    tensors, count + 2, &metadata, 1, 4096, &header, &header_bytes, &err))
		must(0, err.message);
	file.header_bytes = (size_t)header_bytes;
	file.leaves_at = file.header_bytes + (size_t)at;
	file.seal_at = file.leaves_at + 16 * (size_t)leaf_count;
	file.length = file.seal_at + GPUSNAP_SEAL_BYTES;
	file.bytes = allocate(file.length, 1);
	memcpy(file.bytes, header, file.header_bytes);
	gpusnap_header_bytes_free(header);
	gpusnap_text_free(text);
	gsn_free(tensors);
	return file;
}

/* Runs of one entry, out of its bytes in the full file. */
static uint8_t *copy_runs(uint8_t *out, const uint8_t *whole, const gpusnap_delta_entry *entry)
{
	for (uint32_t i = 0; i < entry->run_count; i++) {
		uint64_t begin = entry->changed[i].first * GPUSNAP_LEAF_BYTES;
		uint64_t end =
			gsn_min(entry->bytes, begin + entry->changed[i].count * GPUSNAP_LEAF_BYTES);

		if (begin >= end)
			continue;
		memcpy(out, whole + begin, (size_t)(end - begin));
		out += end - begin;
	}
	return out;
}

static void seal_delta(
	struct gsnap_file *file, const gpusnap_plan *plan, gpusnap_digest parent_root)
{
	size_t leaf_bytes = file->seal_at - file->leaves_at;
	gpusnap_seal seal = {
		.version = GPUSNAP_FORMAT_VERSION,
		.required_features = GPUSNAP_FEATURE_DELTA,
		.parent_root = parent_root,
		.header = gpusnap_digest_of(file->bytes, file->header_bytes),
		.leaves = gpusnap_digest_of(file->bytes + file->leaves_at, leaf_bytes),
		.file_bytes = file->length,
		.header_bytes = file->header_bytes,
		.leaf_count = leaf_bytes / GPUSNAP_DIGEST_BYTES,
	};

	memcpy(seal.uuid, plan->uuid, sizeof seal.uuid);
	gpusnap_seal_encode(&seal, file->bytes + file->seal_at);
}

struct gsnap_file make_delta(
	const gpusnap_plan *plan, const struct gsnap_file *after, gpusnap_digest parent_root)
{
	const gpusnap_plan_delta *delta = plan->delta;
	gpusnap_header *header = parse(after);
	struct gsnap_file file;
	size_t count, leaf_bytes = after->seal_at - after->leaves_at;
	struct held *held = list_held(delta, &count);
	uint8_t *out;

	file = make_header(plan, held, count, leaf_bytes / 16);
	out = file.bytes + file.header_bytes;
	for (size_t i = 0; i < count; i++)
		out = copy_runs(out,
			after->bytes + after->header_bytes +
				gpusnap_header_tensor(header, held[i].entry)->begin,
			&delta->entries[held[i].entry]);
	memcpy(file.bytes + file.leaves_at, after->bytes + after->leaves_at, leaf_bytes);
	seal_delta(&file, plan, parent_root);
	gpusnap_header_free(header);
	gsn_free(held);
	return file;
}
