/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/gsnap_make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"

/* ---- plans ---- */

static void must(int condition, const char *what)
{
	if (!condition) {
		(void)fprintf(stderr, "gsnap_make: %s\n", what);
		abort();
	}
}

/* Room for one more element at the end of a list, whose capacity is a power of two. */
static void *append(void *list, size_t count, size_t size)
{
	void *grown;

	if (count & (count - 1))
		return list;
	grown = gsn_grow(list, count, count ? 2 * count : 1, size);
	must(grown != NULL, "no memory");
	return grown;
}

static void *copy(const void *values, uint32_t count, size_t size)
{
	void *memory = gsn_alloc(count, size);

	must(memory != NULL, "no memory");
	if (count)
		memcpy(memory, values, count * size);
	return memory;
}

gpusnap_plan *make_plan(void)
{
	gpusnap_plan *plan = gsn_alloc(1, sizeof *plan);

	must(plan != NULL, "no memory");
	plan->writer = gsn_strdup("gsnap_make 1");
	for (int i = 0; i < 16; i++)
		plan->uuid[i] = (uint8_t)(i * 17);
	plan->tp_size = plan->ep_size = 1;
	return plan;
}

gpusnap_plan_region *make_region(gpusnap_plan *plan, uint32_t id, const char *tag, uint64_t bytes)
{
	gpusnap_plan_region *region;

	plan->regions = append(plan->regions, plan->region_count, sizeof *region);
	region = &plan->regions[plan->region_count++];
	region->id = id;
	region->tag = gsn_strdup(tag);
	region->device = gsn_strdup("host");
	region->bytes = bytes;
	region->managed = true;
	region->address = UINT64_C(0x7f0000000000) + ((uint64_t)id << 32);
	return region;
}

gpusnap_plan_buffer *make_buffer(gpusnap_plan *plan, const char *name, gpusnap_dtype dtype,
	uint32_t region, uint64_t offset, uint32_t rank, const uint64_t *shape)
{
	gpusnap_plan_buffer *buffer;
	gpusnap_status status;

	plan->buffers = append(plan->buffers, plan->buffer_count, sizeof *buffer);
	buffer = &plan->buffers[plan->buffer_count++];
	buffer->name = gsn_strdup(name);
	buffer->role = GPUSNAP_ROLE_WEIGHT;
	buffer->dtype = dtype;
	buffer->rank = rank;
	buffer->shape = copy(shape, rank, sizeof *shape);
	buffer->region = region;
	buffer->offset = offset;
	buffer->kept = true;
	status = gpusnap_dtype_tensor_bytes(dtype, rank, shape, &buffer->bytes, NULL);
	must(status == GPUSNAP_OK, "shape has no size");
	return buffer;
}

gpusnap_plan_buffer *make_mask(gpusnap_plan *plan, const char *name, uint32_t region,
	uint64_t offset, const gpusnap_mask_type *type)
{
	uint64_t length = gpusnap_mask_length(type);
	gpusnap_plan_buffer *buffer =
		make_buffer(plan, name, GPUSNAP_I32, region, offset, 1, &length);

	buffer->role = GPUSNAP_ROLE_EXPERT_MASK;
	buffer->mask = *type;
	return buffer;
}

gpusnap_plan_view *make_view(gpusnap_plan *plan, const char *name, const char *buffer,
	gpusnap_dtype dtype, uint64_t offset, uint32_t rank, const uint64_t *shape)
{
	gpusnap_plan_view *view;
	int64_t stride = 1;

	plan->views = append(plan->views, plan->view_count, sizeof *view);
	view = &plan->views[plan->view_count++];
	view->name = gsn_strdup(name);
	view->buffer = gsn_strdup(buffer);
	view->dtype = dtype;
	view->offset = offset;
	view->rank = rank;
	view->shape = copy(shape, rank, sizeof *shape);
	view->strides = gsn_alloc(rank, sizeof *view->strides);
	for (uint32_t i = rank; i-- > 0;) {
		view->strides[i] = stride;
		stride *= (int64_t)shape[i];
	}
	return view;
}

/* ---- files ---- */

/* One tensor to be: a kept buffer, or unclaimed bytes. */
struct entry {
	const gpusnap_plan_buffer *buffer; /* NULL: raw */
	uint32_t region;
	uint64_t offset, bytes;
	uint64_t raw_shape;
	char raw_name[48];
	size_t position; /* keeps the sort stable */
};

struct entries {
	struct entry *items;
	size_t count;
};

static struct entry *add_entry(
	struct entries *entries, uint32_t region, uint64_t offset, uint64_t bytes)
{
	struct entry *entry;

	entries->items = append(entries->items, entries->count, sizeof *entry);
	entry = &entries->items[entries->count];
	*entry = (struct entry){.region = region,
		.offset = offset,
		.bytes = bytes,
		.raw_shape = bytes,
		.position = entries->count++};
	return entry;
}

static void add_raw(struct entries *entries, uint32_t region, uint64_t offset, uint64_t bytes)
{
	struct entry *entry = add_entry(entries, region, offset, bytes);

	(void)snprintf(entry->raw_name, sizeof entry->raw_name, GPUSNAP_RAW_FORMAT, region,
		(unsigned long long)offset);
}

/* End of the lowest buffer of the region that begins at or after `at`; fills *begin. */
static uint64_t next_claimed(
	const gpusnap_plan *plan, const gpusnap_plan_region *region, uint64_t at, uint64_t *begin)
{
	uint64_t end = region->bytes;

	*begin = region->bytes;
	for (uint32_t i = 0; i < plan->buffer_count; i++) {
		const gpusnap_plan_buffer *buffer = &plan->buffers[i];

		if (buffer->region != region->id || buffer->bytes == 0 || buffer->offset < at ||
			buffer->offset >= *begin)
			continue;
		*begin = buffer->offset;
		end = buffer->offset + buffer->bytes;
	}
	return end;
}

static struct entries list_entries(const gpusnap_plan *plan)
{
	struct entries entries = {NULL, 0};

	for (uint32_t i = 0; i < plan->buffer_count; i++) {
		const gpusnap_plan_buffer *buffer = &plan->buffers[i];

		if (buffer->kept)
			add_entry(&entries, buffer->region, buffer->offset, buffer->bytes)->buffer =
				buffer;
	}
	for (uint32_t i = 0; i < plan->region_count; i++) {
		const gpusnap_plan_region *region = &plan->regions[i];
		uint64_t at = 0, begin;

		while (region->unclaimed == GPUSNAP_POLICY_KEEP && at < region->bytes) {
			uint64_t end = next_claimed(plan, region, at, &begin);

			if (begin > at)
				add_raw(&entries, region->id, at, begin - at);
			at = end;
		}
	}
	return entries;
}

static uint64_t alignment_of(uint64_t bytes)
{
	uint64_t lowest = bytes & (0 - bytes);

	return lowest > 4096 ? 4096 : lowest;
}

static int compare_entries(const void *a, const void *b)
{
	const struct entry *x = a;
	const struct entry *y = b;
	uint64_t left = alignment_of(x->bytes), right = alignment_of(y->bytes);

	if (left != right)
		return left > right ? -1 : 1;
	return (x->position > y->position) - (x->position < y->position);
}

static gpusnap_tensor tensor_of(struct entry *entry, uint64_t begin)
{
	const gpusnap_plan_buffer *buffer = entry->buffer;
	gpusnap_tensor tensor = {
		.name = buffer ? buffer->name : entry->raw_name,
		.dtype = buffer ? buffer->dtype : GPUSNAP_U8,
		.rank = buffer ? buffer->rank : 1,
		.shape = buffer ? buffer->shape : &entry->raw_shape,
		.begin = begin,
		.end = begin + entry->bytes,
	};

	tensor.name_length = strlen(tensor.name);
	return tensor;
}

/* What a region holds before anybody wrote a mask. Leaves of equal length differ. */
static uint8_t pattern(uint32_t region, uint64_t offset)
{
	return (uint8_t)(offset * 131 + (offset >> 8) * 7 + (offset >> 16) * 29 +
			 (uint64_t)region * 61 + 17);
}

static void fill_entry(const struct entry *entry, uint8_t *bytes)
{
	const gpusnap_plan_buffer *buffer = entry->buffer;
	int32_t *mask;

	for (uint64_t i = 0; i < entry->bytes; i++)
		bytes[i] = pattern(entry->region, entry->offset + i);
	if (!buffer || buffer->role != GPUSNAP_ROLE_EXPERT_MASK)
		return;
	mask = gsn_alloc(gpusnap_mask_length(&buffer->mask), sizeof *mask);
	must(mask != NULL, "no memory");
	gpusnap_mask_fill(&buffer->mask, mask);
	for (uint64_t i = 0; i < entry->bytes / 4; i++)
		gsn_put_le32(bytes + 4 * i, (uint32_t)mask[i]);
	gsn_free(mask);
}

static uint64_t count_leaves(const struct entries *entries)
{
	uint64_t count = 0;

	for (size_t i = 0; i < entries->count; i++)
		count += gpusnap_leaf_count(entries->items[i].bytes);
	return count;
}

/* Header bytes for the entries, the leaves and the seal. */
static struct gsnap_file make_header(const struct entries *entries, const char *text)
{
	const uint64_t leaves_shape[] = {count_leaves(entries), 16}, seal_shape[] = {4096};
	gpusnap_tensor *tensors = gsn_alloc(entries->count + 2, sizeof *tensors);
	gpusnap_metadata metadata = {GPUSNAP_PLAN_KEY, text};
	struct gsnap_file file = {0};
	gpusnap_error err;
	uint64_t at = 0, header_bytes;
	uint8_t *header;

	must(tensors != NULL, "no memory");
	for (size_t i = 0; i < entries->count; i++) {
		tensors[i] = tensor_of(&entries->items[i], at);
		at = tensors[i].end;
	}
	tensors[entries->count] = (gpusnap_tensor){GPUSNAP_LEAVES_NAME, 14, GPUSNAP_U8, 2,
		leaves_shape, at, at + 16 * leaves_shape[0]};
	file.leaves_at = (size_t)at;
	at += 16 * leaves_shape[0];
	tensors[entries->count + 1] = (gpusnap_tensor){
		GPUSNAP_SEAL_NAME, 12, GPUSNAP_U8, 1, seal_shape, at, at + GPUSNAP_SEAL_BYTES};
	if (gpusnap_header_build(
		    tensors, entries->count + 2, &metadata, 1, 4096, &header, &header_bytes, &err))
		must(0, err.message);
	file.header_bytes = (size_t)header_bytes;
	file.leaves_at += file.header_bytes;
	file.seal_at = file.header_bytes + (size_t)at;
	file.length = file.seal_at + GPUSNAP_SEAL_BYTES;
	file.bytes = gsn_alloc(file.length, 1);
	must(file.bytes != NULL, "no memory");
	memcpy(file.bytes, header, file.header_bytes);
	gpusnap_header_bytes_free(header);
	gsn_free(tensors);
	return file;
}

static struct entries sorted_entries(const gpusnap_plan *plan)
{
	struct entries entries = list_entries(plan);

	if (entries.count)
		qsort(entries.items, entries.count, sizeof *entries.items, compare_entries);
	return entries;
}

struct gsnap_file make_file(const gpusnap_plan *plan, const char *text)
{
	struct entries entries = sorted_entries(plan);
	char *own = gpusnap_plan_encode(plan);
	struct gsnap_file file;
	size_t at;

	must(own != NULL, "plan cannot be encoded");
	file = make_header(&entries, text ? text : own);
	at = file.header_bytes;
	for (size_t i = 0; i < entries.count; i++) {
		fill_entry(&entries.items[i], file.bytes + at);
		at += (size_t)entries.items[i].bytes;
	}
	gsn_free(entries.items);
	gpusnap_text_free(own);
	seal_file(&file, plan);
	return file;
}

/* Digests of the leaves of `length` bytes; returns where the next one goes. */
static uint8_t *digest_leaves(const uint8_t *bytes, uint64_t length, uint8_t *out)
{
	for (uint64_t at = 0; at < length; at += GPUSNAP_LEAF_BYTES) {
		gpusnap_digest digest = gpusnap_digest_of(
			bytes + at, (size_t)gsn_min(GPUSNAP_LEAF_BYTES, length - at));

		memcpy(out, digest.bytes, sizeof digest.bytes);
		out += sizeof digest.bytes;
	}
	return out;
}

void seal_file(struct gsnap_file *file, const gpusnap_plan *plan)
{
	struct entries entries = sorted_entries(plan);
	size_t leaf_bytes = file->seal_at - file->leaves_at, at = file->header_bytes;
	uint8_t *out = file->bytes + file->leaves_at;
	gpusnap_seal seal = {
		.version = GPUSNAP_FORMAT_VERSION,
		.header = gpusnap_digest_of(file->bytes, file->header_bytes),
		.file_bytes = file->length,
		.header_bytes = file->header_bytes,
		.leaf_count = leaf_bytes / GPUSNAP_DIGEST_BYTES,
	};

	for (size_t i = 0; i < entries.count; i++) {
		out = digest_leaves(file->bytes + at, entries.items[i].bytes, out);
		at += (size_t)entries.items[i].bytes;
	}
	gsn_free(entries.items);
	memcpy(seal.uuid, plan->uuid, sizeof seal.uuid);
	seal.leaves = gpusnap_digest_of(file->bytes + file->leaves_at, leaf_bytes);
	gpusnap_seal_encode(&seal, file->bytes + file->seal_at);
}

void free_file(struct gsnap_file *file)
{
	gsn_free(file->bytes);
	*file = (struct gsnap_file){0};
}

/* ---- reading ---- */

static gpusnap_status check_digest(const char *what, const uint8_t *bytes, uint64_t length,
	gpusnap_digest expected, gpusnap_error *err)
{
	if (gpusnap_digest_equal(gpusnap_digest_of(bytes, (size_t)length), expected))
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_CORRUPT, "%s does not match its digest", what);
}

/* Leaves of `length` bytes from `at` on, against those of the table. */
static gpusnap_status check_leaf_run(const char *name, const uint8_t *at, uint64_t length,
	const uint8_t *leaf, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	for (uint64_t done = 0; !status && done < length; done += GPUSNAP_LEAF_BYTES) {
		gpusnap_digest expected;

		memcpy(expected.bytes, leaf, sizeof expected.bytes);
		leaf += sizeof expected.bytes;
		status = check_digest(
			name, at + done, gsn_min(GPUSNAP_LEAF_BYTES, length - done), expected, err);
	}
	return status;
}

/* What a delta holds of an entry, whose leaves begin at `leaf`. */
static gpusnap_status check_entry_data(const uint8_t *data, const gpusnap_header *header,
	const gpusnap_plan_delta *delta, uint32_t index, const uint8_t *leaf, gpusnap_error *err)
{
	const gpusnap_delta_entry *entry = &delta->entries[index];
	const gpusnap_tensor *tensor;
	gpusnap_status status = GPUSNAP_OK;
	uint64_t at;
	char name[48];

	(void)snprintf(name, sizeof name, GPUSNAP_DELTA_FORMAT, (unsigned long long)index);
	tensor = gpusnap_header_find(header, name);
	at = tensor ? tensor->begin : 0;
	for (uint32_t i = 0; !status && i < entry->run_count; i++) {
		const gpusnap_delta_run *run = &entry->changed[i];
		uint64_t bytes = gsn_min(run->count * GPUSNAP_LEAF_BYTES,
			entry->bytes - run->first * GPUSNAP_LEAF_BYTES);

		status = check_leaf_run(entry->name, data + at, bytes, leaf + 16 * run->first, err);
		at += bytes;
	}
	return status;
}

/* All data of the file, of a delta what it holds itself. */
static gpusnap_status check_leaf_data(const uint8_t *bytes, const gpusnap_header *header,
	const gpusnap_plan_delta *delta, gpusnap_error *err)
{
	const uint8_t *data = bytes + gpusnap_header_data_offset(header);
	const uint8_t *leaf = data + gpusnap_header_find(header, GPUSNAP_LEAVES_NAME)->begin;
	size_t count = delta ? delta->entry_count : gpusnap_header_tensor_count(header) - 2;
	gpusnap_status status = GPUSNAP_OK;

	for (size_t i = 0; !status && i < count; i++) {
		const gpusnap_tensor *tensor = gpusnap_header_tensor(header, delta ? 0 : i);
		uint64_t length = delta ? delta->entries[i].bytes : tensor->end - tensor->begin;

		status = delta ? check_entry_data(data, header, delta, (uint32_t)i, leaf, err)
			       : check_leaf_run(
					 tensor->name, data + tensor->begin, length, leaf, err);
		leaf += 16 * gpusnap_leaf_count(length);
	}
	return status;
}

static gpusnap_status read_header(const uint8_t *bytes, size_t length, const gpusnap_seal *seal,
	gpusnap_header **ret_header, gpusnap_error *err)
{
	uint64_t json_bytes;
	gpusnap_status status =
		check_digest("header", bytes, seal->header_bytes, seal->header, err);

	if (!status)
		status = gpusnap_header_measure(bytes, 16, length, &json_bytes, err);
	if (!status)
		status = gpusnap_header_parse(
			(const char *)bytes + 8, json_bytes, length, ret_header, err);
	return status;
}

static gpusnap_status read_body(const uint8_t *bytes, const gpusnap_seal *seal,
	const gpusnap_header *header, gpusnap_plan **ret_plan, gpusnap_error *err)
{
	const char *text = gpusnap_header_metadata(header, GPUSNAP_PLAN_KEY);
	const gpusnap_tensor *leaves;
	gpusnap_plan *plan;
	gpusnap_status status;

	if (!text)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "header has no plan");
	status = gpusnap_plan_decode(text, strlen(text), header, &plan, err);
	if (status)
		return status;
	status = gpusnap_plan_match_seal(plan, header, seal, err);
	if (!status) {
		leaves = gpusnap_header_find(header, GPUSNAP_LEAVES_NAME);
		status = check_digest("leaf table", bytes + seal->header_bytes + leaves->begin,
			leaves->end - leaves->begin, seal->leaves, err);
	}
	if (!status)
		status = check_leaf_data(bytes, header, plan->delta, err);
	if (status || !ret_plan)
		gpusnap_plan_free(plan);
	else
		*ret_plan = plan;
	return status;
}

gpusnap_status read_gsnap(const uint8_t *bytes, size_t length, gpusnap_seal *ret_seal,
	gpusnap_plan **ret_plan, gpusnap_error *err)
{
	gpusnap_header *header = NULL;
	gpusnap_seal seal;
	gpusnap_status status;

	if (length < GPUSNAP_SEAL_BYTES)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "not a snapshot: %zu bytes", length);
	status = gpusnap_seal_decode(bytes + length - GPUSNAP_SEAL_BYTES, length, &seal, err);
	if (!status)
		status = read_header(bytes, length, &seal, &header, err);
	if (!status)
		status = read_body(bytes, &seal, header, ret_plan, err);
	gpusnap_header_free(header);
	if (!status && ret_seal)
		*ret_seal = seal;
	return status;
}
